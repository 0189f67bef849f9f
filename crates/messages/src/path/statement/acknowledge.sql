-- Deletes messages of leases that were not lost: in flight, or visible again. Returns the indices of these leases. Sorted, so that two
-- such statements lock rows in the same order.
WITH request AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret
    FROM unnest($1::integer[], $2::bigint[], $3::text[]) WITH ORDINALITY AS t (queue_id, id, secret, place)
    ORDER BY queue_id, id
), held AS (
    DELETE FROM invisible_message AS m USING request
    WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret
    RETURNING request.queue_id, request.id, request.secret
), visible AS (
    DELETE FROM message AS m USING request
    WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret
    RETURNING request.queue_id, request.id, request.secret
)
SELECT place FROM request JOIN (SELECT * FROM held UNION ALL SELECT * FROM visible) AS deleted USING (queue_id, id, secret)
