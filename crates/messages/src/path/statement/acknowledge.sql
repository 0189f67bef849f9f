-- Deletes messages of leases that were not lost: in flight, or visible again. Returns the indices of these leases. Sorted, so that two
-- such statements lock rows in the same order. The lateral look-ups with their locks cannot become a join, which would read a whole table
-- if the statistics say that it is empty.
WITH request AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret
    FROM unnest($1::integer[], $2::bigint[], $3::text[]) WITH ORDINALITY AS t (queue_id, id, secret, place)
    ORDER BY queue_id, id
), held AS (
    {delete_invisible}
), visible AS (
    {delete_visible}
)
SELECT place FROM request JOIN (SELECT * FROM held UNION ALL SELECT * FROM visible) AS deleted USING (queue_id, id, secret)
