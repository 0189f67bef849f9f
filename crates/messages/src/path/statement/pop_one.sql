-- The oldest messages of one queue that are for anyone: the statement of pops for a lone wish that no other can get into the way of.
WITH wish AS MATERIALIZED (
    SELECT id, least($5::bigint, CASE
            WHEN id <> $3 THEN 0
            WHEN era = $4 THEN returned_from
            WHEN era = $4 + 1 THEN least(returned_from, returned_before)
            ELSE 0
        END) AS known_from
    FROM queue WHERE name = $1 AND deleted_at IS NULL
), taken AS (
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT m.ctid FROM message AS m WHERE m.queue_id = (SELECT wish.id FROM wish) AND m.receiver = ''
            AND m.id >= (SELECT wish.known_from FROM wish) AND (m.expires_at IS NULL OR m.expires_at > now())
        ORDER BY m.id LIMIT $2 FOR UPDATE OF m SKIP LOCKED
    ))
    RETURNING *
)
SELECT 1::bigint AS place, wish.id IS NULL AS is_unknown,
    taken.id IS NULL AND EXISTS (
        SELECT FROM message AS m WHERE m.queue_id = wish.id AND m.receiver = '' AND m.id >= wish.known_from
            AND (m.expires_at IS NULL OR m.expires_at > now())
    ) AS is_contended,
    taken.id, $1 AS queue, taken.sender, taken.receiver,
    (extract(epoch FROM taken.sent_at) * 1000000)::bigint AS sent_unix_us, taken.body
FROM (SELECT) AS always LEFT JOIN wish ON true LEFT JOIN taken ON true
ORDER BY taken.id
