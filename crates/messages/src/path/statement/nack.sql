-- Nacks leases that have not expired. A message without a delay or backoff returns to its place in the queue here, so that the next fetch finds
-- it. The others stay invisible: redelivery returns them when they are due, or moves them to the dead-letter queue after their last attempt.
-- If another transaction has locked the row of the queue, the lease is left as it is and reported as contended or, with $5, its message stays
-- invisible: waiting for the lock would stop the lane. Several requests for one lease count as one. Sorted, so that two such statements lock rows in the same order. The lateral look-ups cannot become joins, which would
-- read a whole table if the statistics say that it is empty.
WITH request AS MATERIALIZED (
    SELECT place, queue_id, id, secret::uuid AS secret, time_ms
    FROM unnest($1::integer[], $2::bigint[], $3::text[], $4::bigint[]) WITH ORDINALITY AS t (queue_id, id, secret, time_ms, place)
    ORDER BY queue_id, id, place
), locked AS MATERIALIZED (
    -- A message that waits for its queue's backoff has an expired lease.
    SELECT request.*, found.* FROM request CROSS JOIN LATERAL (
        SELECT m.ctid AS row, m.attempts, m.expires_at FROM invisible_message AS m
        WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret AND m.due_at > now()
            AND NOT m.is_backing_off
        FOR UPDATE
    ) AS found
), nacked AS MATERIALIZED (
    -- A message that moves to the dead-letter queue waits for nothing.
    SELECT DISTINCT ON (m.queue_id, m.id) m.*, queue.name, CASE WHEN queue.is_last THEN 0 ELSE queue.pause_ms END AS pause_ms,
        queue.pause_ms = 0 AND NOT queue.is_last AND (m.expires_at IS NULL OR m.expires_at > now()) AS is_due
    FROM locked AS m CROSS JOIN LATERAL (
        SELECT name, CASE WHEN m.time_ms >= 0 THEN m.time_ms ELSE coalesce({backoff_ms}, 0) END AS pause_ms,
            m.attempts >= queue.attempts AND EXISTS (
                SELECT FROM queue AS dead WHERE dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL OFFSET 0
            ) IS TRUE AS is_last
        FROM queue WHERE queue.id = m.queue_id AND queue.deleted_at IS NULL LIMIT 1
    ) AS queue
    ORDER BY m.queue_id, m.id, m.place
), held AS MATERIALIZED (
    -- As for redelivery, the eras of these queues do not end meanwhile.
    SELECT queue.id, queue.min_redelivered_id
    FROM (SELECT DISTINCT queue_id FROM nacked WHERE is_due ORDER BY queue_id) AS wanted CROSS JOIN LATERAL (
        SELECT id, min_redelivered_id FROM queue WHERE queue.id = wanted.queue_id AND queue.deleted_at IS NULL FOR UPDATE SKIP LOCKED
    ) AS queue
), decided AS MATERIALIZED (
    SELECT nacked.*, is_due AND held.id IS NOT NULL AS is_returned FROM nacked LEFT JOIN held ON held.id = nacked.queue_id
), gone AS (
    DELETE FROM invisible_message WHERE ctid = ANY (ARRAY(SELECT decided.row FROM decided WHERE is_returned)) RETURNING *
), returned AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, first_received_at, dead_letter)
    SELECT id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, first_received_at, dead_letter FROM gone
), recorded AS (
    UPDATE queue SET min_redelivered_id = least(queue.min_redelivered_id, lowest.id)
    FROM (SELECT queue_id, min(id) AS id FROM decided WHERE is_returned GROUP BY queue_id) AS lowest
        JOIN held ON held.id = lowest.queue_id AND lowest.id < held.min_redelivered_id
    WHERE queue.id = held.id AND queue.id = ANY (ARRAY(SELECT held.id FROM held))
), kept AS (
    UPDATE invisible_message AS m SET lease_secret = NULL, due_at = now() + interval '1 millisecond' * decided.pause_ms
    FROM decided WHERE NOT decided.is_returned AND ($5::boolean OR NOT decided.is_due) AND m.ctid = decided.row
    RETURNING decided.queue_id, decided.id, decided.secret
), applied AS MATERIALIZED (
    SELECT queue_id, id, lease_secret AS secret FROM gone UNION ALL SELECT * FROM kept
), lost AS (
    -- A nacked lease cannot be acknowledged any more.
    INSERT INTO lost_lease (queue_id, id, secret) SELECT * FROM applied ON CONFLICT DO NOTHING
)
-- The name of the queue if the message has returned, and whether the lease is contended.
SELECT request.place, CASE WHEN decided.is_returned THEN decided.name END AS queue, false AS is_contended
FROM request JOIN applied USING (queue_id, id, secret) JOIN decided USING (queue_id, id)
UNION ALL
SELECT request.place, NULL, true FROM request JOIN decided USING (queue_id, id, secret)
WHERE decided.is_due AND NOT decided.is_returned AND NOT $5::boolean
