-- A page of the names of all queues.
WITH found AS MATERIALIZED (
    SELECT name FROM queue WHERE deleted_at IS NULL AND name > $1 AND {prefixes} ORDER BY name LIMIT $2
)
SELECT ARRAY(SELECT name FROM found ORDER BY name) AS queues,
    CASE WHEN (SELECT count(*) FROM found) = $2 THEN (SELECT max(name) FROM found) END AS next
