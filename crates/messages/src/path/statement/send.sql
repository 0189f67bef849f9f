-- Ids are drawn in the order of arrival, after the transaction id has been assigned. A send to an unknown queue gets no id and does not
-- affect the others.
WITH arrived AS MATERIALIZED (
    SELECT place, receiver, sender, body, queue_id, now() + expiry_ms * interval '1 millisecond' AS expires_at,
        CASE WHEN queue_id IS NOT NULL THEN nextval('message_id') END AS id
    FROM (
        SELECT place, receiver, sender, body, queue.id AS queue_id, queue.expiry_ms
        FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
            WITH ORDINALITY AS t (queue_name, receiver, sender, body, place)
            LEFT JOIN LATERAL (
                SELECT id, expiry_ms FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
            ) AS queue ON true
        WHERE pg_current_xact_id() IS NOT NULL
        ORDER BY place
    ) AS known
), stored AS (
    INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)
    SELECT id, queue_id, receiver, sender, body, expires_at FROM arrived WHERE id IS NOT NULL
)
SELECT place, id FROM arrived ORDER BY place
