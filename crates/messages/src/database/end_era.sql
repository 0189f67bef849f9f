-- Ends the eras of the queues in which messages were redelivered. Skips queues that another transaction has locked, for example one that
-- redelivers now. Waiting for one queue would keep the others locked, and redelivery skips locked queues.
WITH locked AS MATERIALIZED (
    SELECT id FROM queue
    WHERE name = ANY ($1) AND deleted_at IS NULL AND min_redelivered_id < 9223372036854775807 AND era_began_at < now() - interval '1 second'
    ORDER BY id FOR UPDATE SKIP LOCKED
)
UPDATE queue SET era = era + 1, era_began_at = now(), previous_min_redelivered_id = min_redelivered_id, min_redelivered_id = 9223372036854775807
FROM locked WHERE queue.id = locked.id
