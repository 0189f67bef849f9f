-- A queue with settings, new or not; no row when the queue for its dead letters is not there. A row that was there has a transaction
-- that changed it.
INSERT INTO queue (name, attempts, dead_letters_id, expiry_ms, lease_ms)
SELECT $1::text, $2::integer, dead.id, $4::bigint, $5::bigint
FROM (VALUES ($3::text)) AS wanted (dead_letters)
    LEFT JOIN queue AS dead ON dead.name = wanted.dead_letters AND dead.deleted_at IS NULL
WHERE wanted.dead_letters IS NULL OR dead.id IS NOT NULL
ON CONFLICT (name) WHERE deleted_at IS NULL DO UPDATE SET attempts = excluded.attempts,
    dead_letters_id = excluded.dead_letters_id, expiry_ms = excluded.expiry_ms, lease_ms = excluded.lease_ms
RETURNING xmax = 0 AS is_new
