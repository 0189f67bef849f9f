-- Where the messages of each queue for each receiver begin, as one snapshot sees it, and whether all transactions up to a number have
-- ended by then. What others have locked or are just taking out still counts as there.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1 AS is_settled, queue.id AS queue_id, queue.era,
    -- While they have not ended nothing is found, and the way past dead rows is spared.
    CASE WHEN pg_snapshot_xmin(pg_current_snapshot())::text::bigint > $1 THEN (
        SELECT m.id FROM message AS m WHERE m.queue_id = queue.id AND m.receiver = t.receiver AND m.id >= least(t.low, queue.known_from)
        ORDER BY m.id LIMIT 1
    ) END AS head
FROM unnest($2::text[], $3::text[], $4::integer[], $5::integer[], $6::bigint[])
        WITH ORDINALITY AS t (queue_name, receiver, low_queue_id, low_era, low, place)
    LEFT JOIN LATERAL (
        SELECT id, era, {known_from} AS known_from
        FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
    ) AS queue ON true
ORDER BY place
