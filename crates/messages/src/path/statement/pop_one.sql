-- Pops the oldest messages of one queue to anyone, for a single fetch that does not compete with others in its batch.
WITH request AS MATERIALIZED (
    SELECT id, least($5::bigint, CASE
            WHEN id <> $3 THEN 0
            WHEN era = $4 THEN min_redelivered_id
            WHEN era = $4 + 1 THEN least(min_redelivered_id, previous_min_redelivered_id)
            ELSE 0
        END) AS scan_from
    FROM queue WHERE name = $1 AND deleted_at IS NULL
), taken AS (
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message AS m WHERE m.queue_id = (SELECT request.id FROM request) AND m.receiver = ''
            AND m.id >= (SELECT request.scan_from FROM request) AND (m.expires_at IS NULL OR m.expires_at > now())
        ORDER BY m.id LIMIT $2 FOR UPDATE OF m SKIP LOCKED
    ))
    RETURNING *
), lost AS (
    INSERT INTO lost_lease (queue_id, id, secret) SELECT queue_id, id, lease_secret FROM taken WHERE lease_secret IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT 1::bigint AS place, request.id IS NULL AS is_unknown,
    taken.id IS NULL AND EXISTS (
        SELECT FROM message AS m WHERE m.queue_id = request.id AND m.receiver = '' AND m.id >= request.scan_from
            AND (m.expires_at IS NULL OR m.expires_at > now())
    ) AS is_contended,
    taken.id, $1 AS queue, taken.sender, taken.receiver,
    (extract(epoch FROM taken.sent_at) * 1000000)::bigint AS sent_unix_us, taken.body, taken.dead_letter::text AS dead_letter
FROM (SELECT) AS always LEFT JOIN request ON true LEFT JOIN taken ON true
ORDER BY taken.id
