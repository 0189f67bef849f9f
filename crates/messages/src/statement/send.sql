-- Ids are drawn in the order of arrival. A queue that is not there gives no id and no message, and does no harm to the others.
WITH arrived AS MATERIALIZED (
    SELECT place, receiver, sender, body, queue_id, CASE WHEN queue_id IS NOT NULL THEN nextval('message_id') END AS id
    FROM (
        SELECT place, receiver, sender, body,
            (SELECT queue.id FROM queue WHERE queue.name = queue_name AND deleted_at IS NULL) AS queue_id
        FROM unnest($1::text[], $2::text[], $3::text[], $4::bytea[])
            WITH ORDINALITY AS t (queue_name, receiver, sender, body, place)
        ORDER BY place
    ) AS known
), stored AS (
    INSERT INTO message (id, queue_id, receiver, sender, body)
    SELECT id, queue_id, receiver, sender, body FROM arrived WHERE id IS NOT NULL
)
SELECT place, id FROM arrived ORDER BY place
