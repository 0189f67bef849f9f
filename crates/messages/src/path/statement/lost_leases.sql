-- The indices of leases that were lost, or never existed: their queue is unknown, or their message is in flight with another lease; and those
-- of leases whose message is still there, because another transaction was changing its row. The other messages are gone.
-- OFFSET 0 keeps the lookups from becoming joins over all rows.
SELECT place, is_lost FROM (
    SELECT place, NOT EXISTS (SELECT FROM queue WHERE queue.id = request.queue_id OFFSET 0) OR EXISTS (
            SELECT FROM lost_lease AS l
            WHERE l.queue_id = request.queue_id AND l.id = request.id AND l.secret = request.secret::uuid OFFSET 0
        ) OR EXISTS (
            SELECT FROM invisible_message AS m WHERE m.queue_id = request.queue_id AND m.id = request.id
                AND m.lease_secret IS DISTINCT FROM request.secret::uuid OFFSET 0
        ) AS is_lost, EXISTS (
            SELECT FROM invisible_message AS m WHERE m.queue_id = request.queue_id AND m.id = request.id
                AND m.lease_secret = request.secret::uuid OFFSET 0
        ) OR EXISTS (
            SELECT FROM message AS m WHERE m.queue_id = request.queue_id AND m.id = request.id
                AND m.lease_secret = request.secret::uuid OFFSET 0
        ) AS is_there
    FROM unnest($1::integer[], $2::bigint[], $3::text[]) WITH ORDINALITY AS request (queue_id, id, secret, place)
) AS looked_up
WHERE is_lost OR is_there
