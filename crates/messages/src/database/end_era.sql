-- Ends the eras of the queues in which messages were redelivered. Waits for transactions that redeliver now, and locks queues in the same
-- order as they do.
WITH locked AS MATERIALIZED (
    SELECT id FROM queue
    WHERE name = ANY ($1) AND deleted_at IS NULL AND min_redelivered_id < 9223372036854775807 AND era_began_at < now() - interval '1 second'
    ORDER BY id FOR UPDATE
)
UPDATE queue SET era = era + 1, era_began_at = now(), previous_min_redelivered_id = min_redelivered_id, min_redelivered_id = 9223372036854775807
FROM locked WHERE queue.id = locked.id
