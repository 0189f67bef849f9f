-- Each wish takes the oldest messages that are for its receiver or for anyone. Wishes of one group share the messages for anyone:
-- the wish whose own messages are youngest gets the oldest shared one, and so on until a wish's own message is the older; so each
-- gets what it would have got alone, and none is given twice. docs/messages.md has the argument.
-- A pop is done when they are taken; a receive puts what was taken under a lease in the same statement.
WITH wish AS MATERIALIZED (
    SELECT place, part, queue_name, receiver, sender, wanted, queue.id AS queue_id,
        least(CASE WHEN receiver = '' THEN shared_low ELSE own_low END, known_from) AS own_from, least(shared_low, known_from) AS shared_from
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::integer[], $7::integer[], $8::bigint[], $9::bigint[])
            WITH ORDINALITY AS t (part, queue_name, receiver, sender, wanted, low_queue_id, low_era, own_low, shared_low, place)
        LEFT JOIN LATERAL (
            SELECT id, {known_from} AS known_from
            FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
        ) AS queue ON true
), own AS MATERIALIZED (
    SELECT place, head.id, head.row, row_number() OVER (PARTITION BY place ORDER BY head.id) AS turn
    FROM wish CROSS JOIN LATERAL (
        SELECT m.id, m.ctid AS row FROM message AS m
        WHERE m.receiver = wish.receiver AND {scope}{own}
        ORDER BY m.id LIMIT wish.wanted FOR UPDATE OF m SKIP LOCKED
    ) AS head
    WHERE wish.receiver <> ''
), shared AS MATERIALIZED (
    SELECT part, head.id, head.row, row_number() OVER (PARTITION BY part ORDER BY head.id) AS turn
    FROM (
        SELECT part, min(queue_name) AS queue_name, min(queue_id) AS queue_id, min(sender) AS sender, sum(wanted) AS wanted,
            min(shared_from) AS shared_from
        FROM wish GROUP BY part
    ) AS wish CROSS JOIN LATERAL (
        SELECT m.id, m.ctid AS row FROM message AS m
        WHERE m.receiver = '' AND {scope}{shared}
        ORDER BY m.id LIMIT wish.wanted FOR UPDATE OF m SKIP LOCKED
    ) AS head
), unit AS (
    SELECT wish.place, part, own.id, own.row,
        row_number() OVER (PARTITION BY part ORDER BY own.id DESC NULLS FIRST, wish.place) AS turn
    FROM wish CROSS JOIN LATERAL generate_series(1, wanted) AS nth
        LEFT JOIN own ON own.place = wish.place AND own.turn = nth
), chosen AS MATERIALIZED (
    SELECT place,
        CASE WHEN shared.id < unit.id OR unit.id IS NULL THEN shared.id ELSE unit.id END AS id,
        CASE WHEN shared.id < unit.id OR unit.id IS NULL THEN shared.row ELSE unit.row END AS row
    FROM unit LEFT JOIN shared USING (part, turn)
), taken AS (
    DELETE FROM message WHERE ctid = ANY (ARRAY(SELECT chosen.row FROM chosen)) RETURNING *
){then}
SELECT wish.place, wish.queue_name <> '' AND wish.queue_id IS NULL AS is_unknown,
    {rows}.id IS NULL AND (EXISTS (
        SELECT FROM message AS m WHERE m.receiver = wish.receiver AND {scope}{own}
            AND m.ctid <> ALL (ARRAY(SELECT chosen.row FROM chosen WHERE chosen.row IS NOT NULL))
    ) OR EXISTS (
        SELECT FROM message AS m WHERE m.receiver = '' AND wish.receiver <> '' AND {scope}{shared}
            AND m.ctid <> ALL (ARRAY(SELECT chosen.row FROM chosen WHERE chosen.row IS NOT NULL))
    )) AS is_contended,
    {rows}.id, queue.name AS queue, {rows}.sender, {rows}.receiver,
    (extract(epoch FROM {rows}.sent_at) * 1000000)::bigint AS sent_unix_us, {rows}.body{lease}
FROM wish LEFT JOIN (chosen JOIN {rows} USING (id)) USING (place) LEFT JOIN queue ON queue.id = {rows}.queue_id
ORDER BY wish.place, {rows}.id
