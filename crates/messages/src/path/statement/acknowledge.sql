-- Deletes messages of leases that were not lost: in flight, or visible again. Returns the indices of these leases. Sorted, so that two
-- such statements lock rows in the same order. The lateral look-ups with their locks cannot become a join, which would read a whole table
-- if the statistics say that it is empty.
WITH request AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret
    FROM unnest($1::integer[], $2::bigint[], $3::text[]) WITH ORDINALITY AS t (queue_id, id, secret, place)
    ORDER BY queue_id, id
), held AS (
    DELETE FROM invisible_message WHERE ctid = ANY (ARRAY(
        SELECT found.row FROM request CROSS JOIN LATERAL (
            SELECT m.ctid AS row FROM invisible_message AS m
            WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret FOR UPDATE
        ) AS found
    ))
    RETURNING queue_id, id, lease_secret AS secret
), visible AS (
    DELETE FROM message WHERE ctid = ANY (ARRAY(
        SELECT found.row FROM request CROSS JOIN LATERAL (
            SELECT m.ctid AS row FROM message AS m
            WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret FOR UPDATE
        ) AS found
    ))
    RETURNING queue_id, id, lease_secret AS secret
)
SELECT place FROM request JOIN (SELECT * FROM held UNION ALL SELECT * FROM visible) AS deleted USING (queue_id, id, secret)
