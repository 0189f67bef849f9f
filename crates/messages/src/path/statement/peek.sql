-- The oldest messages for each receiver or for anyone, left where they are.
WITH wish AS MATERIALIZED (
    SELECT place, queue_name, receiver, sender, wanted,
        (SELECT queue.id FROM queue WHERE queue.name = queue_name AND deleted_at IS NULL) AS queue_id
    FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[])
        WITH ORDINALITY AS t (queue_name, receiver, sender, wanted, place)
)
SELECT wish.place, wish.queue_name <> '' AND wish.queue_id IS NULL AS is_unknown, false AS is_contended,
    head.id, queue.name AS queue, head.sender, head.receiver,
    (extract(epoch FROM head.sent_at) * 1000000)::bigint AS sent_unix_us, head.body
FROM wish LEFT JOIN LATERAL (
    SELECT * FROM (
        (SELECT m.* FROM message AS m WHERE m.receiver = wish.receiver AND {scope} ORDER BY m.id LIMIT wish.wanted)
        UNION ALL
        (SELECT m.* FROM message AS m WHERE m.receiver = '' AND wish.receiver <> '' AND {scope} ORDER BY m.id LIMIT wish.wanted)
    ) AS both_heads
    ORDER BY id LIMIT wish.wanted
) AS head ON true LEFT JOIN queue ON queue.id = head.queue_id
ORDER BY wish.place, head.id
