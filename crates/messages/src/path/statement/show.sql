-- A queue's settings, and how much is in it. The counts end at $2, so that a look at a long queue costs little.
SELECT queue.attempts, dead.name AS dead_letters, queue.expiry_ms, queue.lease_ms, (
        SELECT count(*) FROM (
            SELECT FROM message AS m WHERE m.queue_id = queue.id AND (m.expires_at IS NULL OR m.expires_at > now()) LIMIT $2
        ) AS counted
    ) AS waiting, (
        SELECT count(*) FROM (
            SELECT FROM held AS m WHERE m.queue_id = queue.id AND (m.expires_at IS NULL OR m.expires_at > now()) LIMIT $2
        ) AS counted
    ) AS held
FROM queue LEFT JOIN queue AS dead ON dead.id = queue.dead_letters_id AND dead.deleted_at IS NULL
WHERE queue.name = $1 AND queue.deleted_at IS NULL
