-- Creates or changes a queue with settings. Returns no row if its dead-letter queue does not exist. The update comes first, because an insert
-- draws a number even if the queue exists. If another transaction creates the queue meanwhile, the insert changes it; xmax is not 0 then.
WITH wanted AS MATERIALIZED (
    SELECT $1::text AS name, $2::integer AS attempts, dead.id AS dead_letter_queue_id, $4::bigint AS expiry_ms, $5::bigint AS lease_ms,
        $6::bigint AS backoff_ms
    FROM (VALUES ($3::text)) AS named (dead_letter_queue)
        LEFT JOIN queue AS dead ON dead.name = named.dead_letter_queue AND dead.deleted_at IS NULL
    WHERE named.dead_letter_queue IS NULL OR dead.id IS NOT NULL
), changed AS (
    UPDATE queue SET attempts = wanted.attempts, dead_letter_queue_id = wanted.dead_letter_queue_id, expiry_ms = wanted.expiry_ms,
        lease_ms = wanted.lease_ms, backoff_ms = wanted.backoff_ms
    FROM wanted WHERE queue.name = $1 AND queue.deleted_at IS NULL
    RETURNING false AS is_new
), created AS (
    INSERT INTO queue (name, attempts, dead_letter_queue_id, expiry_ms, lease_ms, backoff_ms)
    SELECT * FROM wanted WHERE NOT EXISTS (SELECT FROM changed)
    ON CONFLICT (name) WHERE deleted_at IS NULL DO UPDATE SET attempts = excluded.attempts,
        dead_letter_queue_id = excluded.dead_letter_queue_id, expiry_ms = excluded.expiry_ms, lease_ms = excluded.lease_ms,
        backoff_ms = excluded.backoff_ms
    RETURNING xmax = 0 AS is_new
)
SELECT is_new FROM changed UNION ALL SELECT is_new FROM created
