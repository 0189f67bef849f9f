-- A piece of what is due: back to its queue with its old place, to the queue for dead letters when all attempts were used, or away
-- when it expired or its queue was deleted. What another connection has in its hands is left to it.
WITH due AS MATERIALIZED (
    SELECT queue_id, id FROM held WHERE due_at <= now() AND due_at > to_timestamp($1::bigint / 1000.0)
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM held USING due WHERE held.queue_id = due.queue_id AND held.id = due.id RETURNING held.*
), target AS MATERIALIZED (
    SELECT gone.*, queue.name, dead.name AS dead_name, dead.id AS dead_id,
        now() + dead.expiry_ms * interval '1 millisecond' AS dead_expires_at,
        queue.id IS NOT NULL AND (gone.expires_at IS NULL OR gone.expires_at > now()) AS is_alive
    FROM gone
        LEFT JOIN queue ON queue.id = gone.queue_id AND queue.deleted_at IS NULL
        LEFT JOIN queue AS dead ON dead.id = queue.dead_letters_id AND dead.deleted_at IS NULL AND gone.attempts >= queue.attempts
), returned AS MATERIALIZED (
    SELECT coalesce(dead_id, queue_id) AS queue_id, min(id) AS id FROM target WHERE is_alive GROUP BY 1
), locked AS MATERIALIZED (
    -- Whoever ends a queue's era waits for us. In one order, so that two of us do not wait for each other.
    SELECT queue.id, queue.returned_from FROM queue WHERE id IN (SELECT returned.queue_id FROM returned) ORDER BY id FOR UPDATE
), noted AS (
    UPDATE queue SET returned_from = least(queue.returned_from, returned.id)
    FROM returned JOIN locked ON locked.id = returned.queue_id
    WHERE queue.id = locked.id AND returned.id < locked.returned_from
), moved AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts)
    SELECT id, coalesce(dead_id, queue_id), receiver, sender, sent_at, body,
        CASE WHEN dead_id IS NULL THEN expires_at ELSE dead_expires_at END, CASE WHEN dead_id IS NULL THEN attempts ELSE 0 END
    FROM target
    -- Not before all locks are there.
    WHERE is_alive AND (SELECT count(*) FROM locked) > 0
)
SELECT count(*) AS messages, CASE WHEN is_alive THEN coalesce(dead_name, name) END AS queue, dead_name IS NOT NULL AS is_dead
FROM target
GROUP BY 2, 3
