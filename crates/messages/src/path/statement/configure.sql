-- Creates or changes a queue with settings. Returns no row if its dead-letter queue does not exist. xmax is not 0 if the row existed.
INSERT INTO queue (name, attempts, dead_letter_queue_id, expiry_ms, lease_ms, backoff_ms)
SELECT $1::text, $2::integer, dead.id, $4::bigint, $5::bigint, $6::bigint
FROM (VALUES ($3::text)) AS named (dead_letter_queue)
    LEFT JOIN queue AS dead ON dead.name = named.dead_letter_queue AND dead.deleted_at IS NULL
WHERE named.dead_letter_queue IS NULL OR dead.id IS NOT NULL
ON CONFLICT (name) WHERE deleted_at IS NULL DO UPDATE SET attempts = excluded.attempts,
    dead_letter_queue_id = excluded.dead_letter_queue_id, expiry_ms = excluded.expiry_ms, lease_ms = excluded.lease_ms,
    backoff_ms = excluded.backoff_ms
RETURNING xmax = 0 AS is_new
