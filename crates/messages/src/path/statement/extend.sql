-- Extends leases that have not expired. A message that waits for its queue's backoff has an expired lease.
-- Several requests for one lease count as one. The places of expired and unknown leases are not returned. Sorted, so that two such
-- statements lock rows in the same order.
WITH request AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret, time_ms
    FROM unnest($1::integer[], $2::bigint[], $3::text[], $4::bigint[]) WITH ORDINALITY AS t (queue_id, id, secret, time_ms, place)
    ORDER BY queue_id, id
), locked AS MATERIALIZED (
    -- Lookups that cannot become a join, which would read the whole table if the statistics say that it is empty.
    SELECT request.*, found.row FROM request CROSS JOIN LATERAL (
        SELECT m.ctid AS row FROM invisible_message AS m
        WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret AND m.due_at > now()
            AND NOT m.is_backing_off AND (SELECT deleted_at IS NULL FROM queue WHERE queue.id = m.queue_id)
        FOR UPDATE
    ) AS found
), applied AS (
    {extend}
    WHERE m.ctid = request.row
    RETURNING request.queue_id, request.id, request.secret
)
SELECT place FROM request JOIN applied USING (queue_id, id, secret)
