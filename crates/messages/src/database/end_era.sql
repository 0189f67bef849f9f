-- Ends the eras of these queues in which messages came back. It waits for those who are just putting something back, and locks in
-- the order in which they do.
WITH locked AS MATERIALIZED (
    SELECT id FROM queue
    WHERE name = ANY ($1) AND deleted_at IS NULL AND returned_from < 9223372036854775807 AND era_began_at < now() - interval '1 second'
    ORDER BY id FOR UPDATE
)
UPDATE queue SET era = era + 1, era_began_at = now(), returned_before = returned_from, returned_from = 9223372036854775807
FROM locked WHERE queue.id = locked.id
