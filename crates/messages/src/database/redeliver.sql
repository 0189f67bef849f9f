-- Handles a batch of messages that are due: back into their queue in their old place, into the dead-letter queue after the last attempt, or
-- deleted if the message expired or its queue was deleted. Rows that another transaction has locked are left to it.
WITH due AS MATERIALIZED (
    SELECT queue_id, id FROM invisible_message WHERE due_at <= now() AND due_at > to_timestamp($1::bigint / 1000.0)
    ORDER BY due_at LIMIT $2 FOR UPDATE SKIP LOCKED
), removed AS (
    DELETE FROM invisible_message AS m USING due WHERE m.queue_id = due.queue_id AND m.id = due.id RETURNING m.*
), target AS MATERIALIZED (
    SELECT removed.*, queue.name, dead.name AS dead_name, dead.id AS dead_id,
        now() + dead.expiry_ms * interval '1 millisecond' AS dead_expires_at,
        queue.id IS NOT NULL AND (removed.expires_at IS NULL OR removed.expires_at > now()) AS is_alive
    FROM removed
        LEFT JOIN queue ON queue.id = removed.queue_id AND queue.deleted_at IS NULL
        LEFT JOIN queue AS dead ON dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL AND removed.attempts >= queue.attempts
), redelivered AS MATERIALIZED (
    SELECT coalesce(dead_id, queue_id) AS queue_id, min(id) AS id FROM target WHERE is_alive GROUP BY 1
), locked AS MATERIALIZED (
    -- The transaction that ends a queue's era waits for these locks. Ordered, so that two redeliveries cannot deadlock.
    SELECT queue.id, queue.min_redelivered_id FROM queue WHERE id IN (SELECT redelivered.queue_id FROM redelivered) ORDER BY id FOR UPDATE
), recorded AS (
    UPDATE queue SET min_redelivered_id = least(queue.min_redelivered_id, redelivered.id)
    FROM redelivered JOIN locked ON locked.id = redelivered.queue_id
    WHERE queue.id = locked.id AND redelivered.id < locked.min_redelivered_id
), inserted AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts)
    SELECT id, coalesce(dead_id, queue_id), receiver, sender, sent_at, body,
        CASE WHEN dead_id IS NULL THEN expires_at ELSE dead_expires_at END, CASE WHEN dead_id IS NULL THEN attempts ELSE 0 END
    FROM target
    -- Not before all locks are held.
    WHERE is_alive AND (SELECT count(*) FROM locked) > 0
)
SELECT count(*) AS messages, CASE WHEN is_alive THEN coalesce(dead_name, name) END AS queue, dead_name IS NOT NULL AS is_dead
FROM target
GROUP BY 2, 3
