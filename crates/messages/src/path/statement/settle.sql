-- What becomes of leases that still hold: {change}. Several requests for one lease are one. A place that does not come back was not
-- leased any more, or never. Sorted, so that two such statements lock rows in the same order.
WITH asked AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret, time_ms
    FROM unnest($1::integer[], $2::bigint[], $3::text[], $4::bigint[]) WITH ORDINALITY AS t (queue_id, id, secret, time_ms, place)
    ORDER BY queue_id, id
), settled AS (
    {change}
    WHERE held.queue_id = asked.queue_id AND held.id = asked.id AND held.lease = asked.secret AND held.due_at > now()
        AND (SELECT deleted_at IS NULL FROM queue WHERE queue.id = held.queue_id)
    RETURNING asked.queue_id, asked.id, asked.secret
)
SELECT place FROM asked JOIN settled USING (queue_id, id, secret)
