-- For each receiver, the queues that have messages addressed to it: one index lookup for each queue.
SELECT place, ARRAY(
    SELECT queue.name FROM queue
    WHERE deleted_at IS NULL AND EXISTS (
        SELECT FROM message AS m WHERE m.queue_id = queue.id AND m.receiver = t.receiver
            AND (m.expires_at IS NULL OR m.expires_at > now())
    )
    ORDER BY queue.name
) AS queues
FROM unnest($1::text[]) WITH ORDINALITY AS t (receiver, place)
ORDER BY place
