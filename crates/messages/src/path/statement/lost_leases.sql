-- The indices of leases that were lost, or never existed: their queue is unknown, or their message is in flight with another lease.
-- OFFSET 0 keeps the lookups from becoming joins over all rows.
SELECT place FROM unnest($1::integer[], $2::bigint[], $3::text[]) WITH ORDINALITY AS request (queue_id, id, secret, place)
WHERE NOT EXISTS (SELECT FROM queue WHERE queue.id = request.queue_id OFFSET 0) OR EXISTS (
    SELECT FROM lost_lease AS l WHERE l.queue_id = request.queue_id AND l.id = request.id AND l.secret = request.secret::uuid OFFSET 0
) OR EXISTS (
    SELECT FROM invisible_message AS m WHERE m.queue_id = request.queue_id AND m.id = request.id
        AND m.lease_secret IS DISTINCT FROM request.secret::uuid OFFSET 0
)
