-- Handles a batch of messages that are due: back into their queue in their old place, into the dead-letter queue after the last attempt, or
-- deleted if the message expired or its queue was deleted. If the queue has a backoff, a message whose lease expired waits for it first.
-- Rows that another transaction has locked are skipped, and so are messages whose target, the queue or its dead-letter queue, is locked.
-- Rows with a `skipped_id` name the queues of these messages, and the limits of attempts that tell the messages for both targets apart.
WITH due AS MATERIALIZED (
    SELECT ctid AS row, queue_id, id, attempts, expires_at, lease_secret IS NOT NULL AND NOT is_backing_off AS has_expired FROM invisible_message
    WHERE due_at <= now() AND {in_scan}
    ORDER BY due_at LIMIT $7 FOR UPDATE SKIP LOCKED
), known AS MATERIALIZED (
    SELECT due.row, due.queue_id, due.id, queue.name, dead.name AS dead_name, dead.id AS dead_id,
        now() + dead.expiry_ms * interval '1 millisecond' AS dead_expires_at,
        CASE WHEN queue.id IS NOT NULL AND (due.expires_at IS NULL OR due.expires_at > now()) THEN coalesce(dead.id, queue.id) END AS to_id,
        CASE WHEN due.has_expired AND dead.id IS NULL THEN {backoff_ms} END AS backoff_ms
    FROM due
        LEFT JOIN queue ON queue.id = due.queue_id AND queue.deleted_at IS NULL
        LEFT JOIN queue AS dead ON dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL AND due.attempts >= queue.attempts
), target AS MATERIALIZED (
    SELECT *, to_id IS NOT NULL AND backoff_ms IS NOT NULL AS is_postponed FROM known
), postponed AS (
    UPDATE invisible_message AS m SET is_backing_off = true, due_at = now() + target.backoff_ms * interval '1 millisecond'
    FROM target WHERE target.is_postponed AND m.ctid = target.row
), locked AS MATERIALIZED (
    -- The eras of these queues do not end while their rows are locked.
    SELECT queue.id, queue.min_redelivered_id FROM queue WHERE id IN (SELECT to_id FROM target WHERE NOT is_postponed)
    ORDER BY id FOR UPDATE SKIP LOCKED
), movable AS MATERIALIZED (
    SELECT * FROM target WHERE NOT is_postponed AND (to_id IS NULL OR to_id IN (SELECT locked.id FROM locked))
), gone AS (
    -- A join over both columns would read the whole table if the statistics say that it is empty.
    DELETE FROM invisible_message WHERE ctid = ANY (ARRAY(SELECT movable.row FROM movable)) RETURNING *
), removed AS (
    SELECT gone.*, movable.to_id, movable.name, movable.dead_id, movable.dead_expires_at FROM gone JOIN movable USING (queue_id, id)
), recorded AS (
    UPDATE queue SET min_redelivered_id = least(queue.min_redelivered_id, lowest.id)
    FROM (SELECT to_id, min(id) AS id FROM movable GROUP BY to_id) AS lowest JOIN locked ON locked.id = lowest.to_id
    WHERE queue.id = locked.id AND lowest.id < locked.min_redelivered_id
), inserted AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, lease_secret, first_received_at, dead_letter)
    SELECT id, to_id, receiver, sender, sent_at, body, expires_at, attempts, lease_secret, first_received_at, dead_letter
    FROM removed WHERE to_id IS NOT NULL AND dead_id IS NULL
), buried AS (
    INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at, dead_letter)
    SELECT id, to_id, receiver, sender, sent_at, body, dead_expires_at, jsonb_build_object(
        'queue', name, 'attempts', attempts,
        'first_received_unix_us', (extract(epoch FROM first_received_at) * 1000000)::bigint,
        'last_received_unix_us', (extract(epoch FROM received_at) * 1000000)::bigint,
        'reason', CASE WHEN lease_secret IS NULL THEN 'nacked' ELSE 'lease-expired' END)
    FROM removed WHERE to_id IS NOT NULL AND dead_id IS NOT NULL
), lost AS (
    INSERT INTO lost_lease (queue_id, id, secret)
    SELECT queue_id, id, lease_secret FROM removed WHERE to_id IS NOT NULL AND dead_id IS NOT NULL AND lease_secret IS NOT NULL
    ON CONFLICT DO NOTHING
)
SELECT count(*) AS messages, CASE WHEN to_id IS NOT NULL THEN coalesce(dead_name, name) END AS queue,
    CASE WHEN to_id IS NULL THEN 'deleted' WHEN dead_name IS NOT NULL THEN 'dead_lettered' ELSE 'visible' END AS outcome,
    NULL::integer AS skipped_id, NULL::integer AS attempts_max
FROM movable GROUP BY 2, 3
UNION ALL
SELECT count(*), NULL, 'postponed', NULL, NULL FROM target WHERE is_postponed HAVING count(*) > 0
UNION ALL
SELECT count(*), NULL, CASE WHEN dead_id IS NULL THEN 'not_returned' ELSE 'not_dead_lettered' END, queue_id, (
    SELECT queue.attempts FROM queue JOIN queue AS dead ON dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL
    WHERE queue.id = target.queue_id
) FROM target
WHERE NOT is_postponed AND to_id IS NOT NULL AND to_id NOT IN (SELECT locked.id FROM locked) GROUP BY 3, target.queue_id
