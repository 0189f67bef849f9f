-- A queue's settings and counts. Counting stops at $2, so that a long queue costs little.
SELECT queue.attempts, dead.name AS dead_letter_queue, queue.expiry_ms, queue.lease_ms, queue.backoff_ms, (
        SELECT count(*) FROM (
            SELECT FROM message AS m WHERE m.queue_id = queue.id AND (m.expires_at IS NULL OR m.expires_at > now()) LIMIT $2
        ) AS counted
    ) AS visible, (
        SELECT count(*) FROM (
            SELECT FROM invisible_message AS m WHERE m.queue_id = queue.id AND (m.expires_at IS NULL OR m.expires_at > now()) LIMIT $2
        ) AS counted
    ) AS invisible
FROM queue LEFT JOIN queue AS dead ON dead.id = queue.dead_letter_queue_id AND dead.deleted_at IS NULL
WHERE queue.name = $1 AND queue.deleted_at IS NULL
