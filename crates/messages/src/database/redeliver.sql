-- Handles a batch of messages that are due: back into their queue in their old place, into the dead-letter queue after the last attempt, or
-- deleted if the message expired or its queue was deleted. Rows and queues that another transaction has locked are left to it. The rows with a
-- `skipped_id` are the queues whose messages were left.
WITH due AS MATERIALIZED (
    SELECT queue_id, id, attempts, expires_at FROM invisible_message
    WHERE due_at <= now() AND due_at > to_timestamp($1::bigint / 1000.0) AND queue_id <> ALL ($3::integer[]) AND id <> ALL ($4::bigint[])
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
), target AS MATERIALIZED (
    SELECT due.queue_id, due.id, queue.name, dead.name AS dead_name, dead.id AS dead_id,
        now() + dead.expiry_ms * interval '1 millisecond' AS dead_expires_at,
        CASE WHEN queue.id IS NOT NULL AND (due.expires_at IS NULL OR due.expires_at > now()) THEN coalesce(dead.id, queue.id) END AS to_id
    FROM due
        LEFT JOIN queue ON queue.id = due.queue_id AND queue.deleted_at IS NULL
        LEFT JOIN queue AS dead ON dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL AND due.attempts >= queue.attempts
), locked AS MATERIALIZED (
    -- The transaction that ends a queue's era waits for these locks. Ordered, so that it cannot deadlock with this one.
    SELECT queue.id, queue.min_redelivered_id FROM queue WHERE id IN (SELECT to_id FROM target) ORDER BY id FOR UPDATE SKIP LOCKED
), movable AS MATERIALIZED (
    SELECT * FROM target WHERE to_id IS NULL OR to_id IN (SELECT locked.id FROM locked)
), removed AS (
    DELETE FROM invisible_message AS m USING movable WHERE m.queue_id = movable.queue_id AND m.id = movable.id
    RETURNING m.*, movable.to_id, movable.dead_id, movable.dead_expires_at
), recorded AS (
    UPDATE queue SET min_redelivered_id = least(queue.min_redelivered_id, lowest.id)
    FROM (SELECT to_id, min(id) AS id FROM movable GROUP BY to_id) AS lowest JOIN locked ON locked.id = lowest.to_id
    WHERE queue.id = locked.id AND lowest.id < locked.min_redelivered_id
), inserted AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts)
    SELECT id, to_id, receiver, sender, sent_at, body,
        CASE WHEN dead_id IS NULL THEN expires_at ELSE dead_expires_at END, CASE WHEN dead_id IS NULL THEN attempts ELSE 0 END
    FROM removed WHERE to_id IS NOT NULL
)
SELECT count(*) AS messages, CASE WHEN to_id IS NOT NULL THEN coalesce(dead_name, name) END AS queue, dead_name IS NOT NULL AS is_dead,
    NULL::integer AS skipped_id
FROM movable GROUP BY 2, 3
UNION ALL
SELECT count(*), NULL, false, queue_id FROM target
WHERE to_id IS NOT NULL AND to_id NOT IN (SELECT locked.id FROM locked) GROUP BY queue_id
