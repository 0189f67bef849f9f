-- The queues that have messages addressed to a receiver: one index lookup for each queue, and a limited number of queues. The list is cut
-- where the limit of names or of lookups is reached. OFFSET 0 keeps the lookups from becoming a join over all messages.
WITH scanned AS MATERIALIZED (
    SELECT id, name FROM queue
    WHERE deleted_at IS NULL AND name > $2 AND {prefixes}
    ORDER BY name LIMIT $5
), found AS MATERIALIZED (
    SELECT name FROM scanned
    WHERE EXISTS (
        SELECT FROM message AS m WHERE m.queue_id = scanned.id AND m.receiver = $1 AND (m.expires_at IS NULL OR m.expires_at > now()) OFFSET 0
    )
    ORDER BY name LIMIT $3
)
SELECT ARRAY(SELECT name FROM found ORDER BY name) AS queues, CASE
    WHEN (SELECT count(*) FROM found) = $3 THEN (SELECT max(name) FROM found)
    WHEN (SELECT count(*) FROM scanned) = $5 THEN (SELECT max(name) FROM scanned)
END AS next
