-- The oldest message of each queue and receiver in one snapshot, and whether all transactions up to a transaction id have ended in it.
-- Messages that other transactions have locked or are removing still count.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1 AS is_complete, queue.id AS queue_id, queue.era,
    -- Until they have ended the result is unused, so the scan over dead rows is skipped.
    CASE WHEN pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1 THEN (
        SELECT m.id FROM message AS m WHERE m.queue_id = queue.id AND m.receiver = t.receiver AND m.id >= least(t.low, queue.scan_from)
        ORDER BY m.id LIMIT 1
    ) END AS head
FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[])
        WITH ORDINALITY AS t (queue_name, receiver, low_queue_id, low_era, low, place)
    LEFT JOIN LATERAL (
        SELECT id, era, {scan_from} AS scan_from
        FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
    ) AS queue ON true
ORDER BY place
