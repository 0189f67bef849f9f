-- Each fetch takes the oldest messages to its receiver or to anyone. Fetches of one group (same queue and sender) share the messages to
-- anyone: the fetch whose own message is youngest gets the oldest shared message, and so on, until a fetch's own message is older than the
-- next shared one. So each fetch gets the messages that it would get alone, and no message is returned twice. docs/messages-design.md has
-- the argument. A pop ends there; a receive leases the taken messages in the same statement.
WITH request AS MATERIALIZED (
    SELECT place, request_group, queue_name, receiver, sender, max_messages, queue.id AS queue_id,
        least(CASE WHEN receiver = '' THEN shared_low ELSE own_low END, scan_from) AS own_from, least(shared_low, scan_from) AS shared_from
    FROM unnest($1::integer[], $2::text[], $3::text[], $4::text[], $5::integer[], $6::integer[], $7::integer[], $8::bigint[], $9::bigint[])
            WITH ORDINALITY AS t (request_group, queue_name, receiver, sender, max_messages, low_queue_id, low_era, own_low, shared_low, place)
        LEFT JOIN LATERAL (
            SELECT id, {scan_from} AS scan_from
            FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
        ) AS queue ON true
), own AS MATERIALIZED (
    SELECT place, head.id, head.row, row_number() OVER (PARTITION BY place ORDER BY head.id) AS turn
    FROM request CROSS JOIN LATERAL (
        SELECT m.id, m.ctid AS row FROM message AS m
        WHERE m.receiver = request.receiver AND {scope}{own}
        ORDER BY m.id LIMIT request.max_messages FOR UPDATE OF m SKIP LOCKED
    ) AS head
    WHERE request.receiver <> ''
), shared AS MATERIALIZED (
    SELECT request_group, head.id, head.row, row_number() OVER (PARTITION BY request_group ORDER BY head.id) AS turn
    FROM (
        SELECT request_group, min(queue_name) AS queue_name, min(queue_id) AS queue_id, min(sender) AS sender, sum(max_messages) AS max_messages,
            min(shared_from) AS shared_from
        FROM request GROUP BY request_group
    ) AS request CROSS JOIN LATERAL (
        SELECT m.id, m.ctid AS row FROM message AS m
        WHERE m.receiver = '' AND {scope}{shared}
        ORDER BY m.id LIMIT request.max_messages FOR UPDATE OF m SKIP LOCKED
    ) AS head
), slot AS (
    SELECT request.place, request_group, own.id, own.row,
        row_number() OVER (PARTITION BY request_group ORDER BY own.id DESC NULLS FIRST, request.place) AS turn
    FROM request CROSS JOIN LATERAL generate_series(1, max_messages) AS nth
        LEFT JOIN own ON own.place = request.place AND own.turn = nth
), chosen AS MATERIALIZED (
    SELECT place,
        CASE WHEN shared.id < slot.id OR slot.id IS NULL THEN shared.id ELSE slot.id END AS id,
        CASE WHEN shared.id < slot.id OR slot.id IS NULL THEN shared.row ELSE slot.row END AS row
    FROM slot LEFT JOIN shared USING (request_group, turn)
), taken AS (
    DELETE FROM message WHERE ctid = ANY (ARRAY(SELECT chosen.row FROM chosen)) RETURNING *
), lost AS (
    -- From now on, the previous holders of these messages, whose leases have expired, cannot acknowledge them.
    INSERT INTO lost_lease (queue_id, id, secret) SELECT queue_id, id, lease_secret FROM taken WHERE lease_secret IS NOT NULL
    ON CONFLICT DO NOTHING
){then}
SELECT request.place, request.queue_name <> '' AND request.queue_id IS NULL AS is_unknown,
    {rows}.id IS NULL AND (EXISTS (
        SELECT FROM message AS m WHERE m.receiver = request.receiver AND {scope}{own}
            AND m.ctid <> ALL (ARRAY(SELECT chosen.row FROM chosen WHERE chosen.row IS NOT NULL))
    ) OR EXISTS (
        SELECT FROM message AS m WHERE m.receiver = '' AND request.receiver <> '' AND {scope}{shared}
            AND m.ctid <> ALL (ARRAY(SELECT chosen.row FROM chosen WHERE chosen.row IS NOT NULL))
    )) AS is_contended,
    {rows}.id, coalesce(nullif(request.queue_name, ''), (SELECT queue.name FROM queue WHERE queue.id = {rows}.queue_id)) AS queue,
    {rows}.sender, {rows}.receiver,
    (extract(epoch FROM {rows}.sent_at) * 1000000)::bigint AS sent_unix_us, {rows}.body, {rows}.dead_letter::text AS dead_letter{lease}
FROM request LEFT JOIN (chosen JOIN {rows} USING (id)) USING (place)
ORDER BY request.place, {rows}.id
