-- Reads the oldest messages to each receiver or to anyone, and leaves them in the queue.
WITH request AS MATERIALIZED (
    SELECT place, queue_name, receiver, sender, max_messages,
        (SELECT queue.id FROM queue WHERE queue.name = queue_name AND deleted_at IS NULL) AS queue_id
    FROM unnest($1::text[], $2::text[], $3::text[], $4::integer[])
        WITH ORDINALITY AS t (queue_name, receiver, sender, max_messages, place)
)
SELECT request.place, request.queue_name <> '' AND request.queue_id IS NULL AS is_unknown, false AS is_contended,
    head.id, coalesce(nullif(request.queue_name, ''), (SELECT queue.name FROM queue WHERE queue.id = head.queue_id)) AS queue, head.sender, head.receiver,
    (extract(epoch FROM head.sent_at) * 1000000)::bigint AS sent_unix_us, head.body, head.dead_letter::text AS dead_letter
FROM request LEFT JOIN LATERAL (
    SELECT * FROM (
        (SELECT m.* FROM message AS m WHERE m.receiver = request.receiver AND {scope} ORDER BY m.id LIMIT request.max_messages)
        UNION ALL
        (SELECT m.* FROM message AS m WHERE m.receiver = '' AND request.receiver <> '' AND {scope} ORDER BY m.id LIMIT request.max_messages)
    ) AS both_heads
    ORDER BY id LIMIT request.max_messages
) AS head ON true
ORDER BY request.place, head.id
