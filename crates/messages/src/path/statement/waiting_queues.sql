-- For each receiver, the queues that have messages addressed to it: one index lookup for each queue, and a limited number of queues.
-- OFFSET 0 keeps the lookups from becoming a join over all messages.
WITH scanned AS MATERIALIZED (
    SELECT id, name FROM queue
    WHERE deleted_at IS NULL AND name > $2 AND {prefixes}
    ORDER BY name LIMIT $5
)
SELECT place, ARRAY(
    SELECT name FROM scanned
    WHERE EXISTS (
        SELECT FROM message AS m WHERE m.queue_id = scanned.id AND m.receiver = t.receiver
            AND (m.expires_at IS NULL OR m.expires_at > now()) OFFSET 0
    )
    ORDER BY name LIMIT $3
) AS queues, (SELECT max(name) FROM scanned HAVING count(*) = $5) AS last_scanned
FROM unnest($1::text[]) WITH ORDINALITY AS t (receiver, place)
ORDER BY place
