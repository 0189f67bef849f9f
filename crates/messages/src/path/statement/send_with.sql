-- Sends with an idempotency key, a delay or an expiry. Of several sends with the same key, in this batch or in another service, the first
-- draws ids and stores its messages; the others get its ids. An insert of a key waits for a concurrent transaction that inserts the same
-- key.
WITH request AS MATERIALIZED (
    SELECT place, sender, key, queue.id AS queue_id, queue.expiry_ms
    FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS t (queue_name, sender, key, place)
        LEFT JOIN LATERAL (
            SELECT id, expiry_ms FROM queue WHERE name = queue_name AND deleted_at IS NULL LIMIT 1
        ) AS queue ON true
), never_visible AS MATERIALIZED (
    -- Requests with a message that the queue's expiry would delete before its delay ends. The expiry of the message was checked before.
    SELECT DISTINCT place FROM unnest($4::bigint[], $7::bigint[], $8::bigint[]) AS t (place, delay_ms, expiry_ms) JOIN request USING (place)
    WHERE delay_ms >= coalesce(nullif(t.expiry_ms, 0), request.expiry_ms)
), repeated AS MATERIALIZED (
    -- Requests among them that repeat an earlier send, whose delay and expiry apply. The lock makes the commit wait for a synchronous standby.
    SELECT place, known.ids, known.content_hash <> sent.content_hash AS is_reused
    FROM (
        SELECT place, request.queue_id, request.sender, key,
            sha256(string_agg(sha256(convert_to(receiver, 'UTF8')) || sha256(body), ''::bytea ORDER BY nth)) AS content_hash
        FROM unnest($4::bigint[], $5::text[], $6::bytea[]) WITH ORDINALITY AS t (place, receiver, body, nth) JOIN request USING (place)
        WHERE key <> '' AND place IN (SELECT never_visible.place FROM never_visible)
        GROUP BY place, request.queue_id, request.sender, key
    ) AS sent CROSS JOIN LATERAL (
        SELECT ids, content_hash FROM idempotency_key AS k
        WHERE k.queue_id = sent.queue_id AND k.sender = sent.sender AND k.key = sent.key LIMIT 1 FOR UPDATE
    ) AS known
), arrived AS MATERIALIZED (
    SELECT place, nth, queue_id, receiver, sender, body, delay_ms, now() + expiry_ms * interval '1 millisecond' AS expires_at,
        nextval('message_id') AS id
    FROM (
        SELECT place, nth, queue_id, receiver, sender, body, delay_ms, coalesce(nullif(t.expiry_ms, 0), request.expiry_ms) AS expiry_ms
        FROM unnest($4::bigint[], $5::text[], $6::bytea[], $7::bigint[], $8::bigint[])
            WITH ORDINALITY AS t (place, receiver, body, delay_ms, expiry_ms, nth)
            JOIN request USING (place)
        WHERE queue_id IS NOT NULL AND pg_current_xact_id() IS NOT NULL AND place NOT IN (SELECT never_visible.place FROM never_visible)
        ORDER BY nth
    ) AS known
), send AS MATERIALIZED (
    SELECT place, request.queue_id, request.sender, key, array_agg(id ORDER BY nth) AS ids, CASE WHEN key <> '' THEN
            sha256(string_agg(sha256(convert_to(receiver, 'UTF8')) || sha256(body), ''::bytea ORDER BY nth))
        END AS content_hash
    FROM arrived JOIN request USING (place)
    GROUP BY place, request.queue_id, request.sender, key
), claimed AS (
    INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids)
    SELECT DISTINCT ON (queue_id, sender, key) queue_id, sender, key, content_hash, ids
    FROM send WHERE key <> ''
    ORDER BY queue_id, sender, key, place
    -- An update without a change returns the row even if the snapshot is too old to see it.
    ON CONFLICT (queue_id, sender, key) DO UPDATE SET ids = idempotency_key.ids
    RETURNING *
), decided AS MATERIALIZED (
    SELECT place, coalesce(claimed.ids, send.ids) AS ids, coalesce(claimed.ids <> send.ids, false) AS is_replayed,
        coalesce(claimed.content_hash <> send.content_hash, false) AS is_reused
    FROM send LEFT JOIN claimed USING (queue_id, sender, key)
), fresh AS MATERIALIZED (
    SELECT arrived.* FROM arrived JOIN decided USING (place) WHERE NOT is_replayed
), stored AS (
    INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)
    SELECT id, queue_id, receiver, sender, body, expires_at FROM fresh WHERE delay_ms = 0
), delayed AS (
    INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, due_at)
    SELECT id, queue_id, receiver, sender, now(), body, expires_at, 0, now() + delay_ms * interval '1 millisecond'
    FROM fresh WHERE delay_ms > 0
)
SELECT place, coalesce(decided.ids, repeated.ids) AS ids, coalesce(is_replayed, repeated.ids IS NOT NULL) AS is_replayed,
    coalesce(decided.is_reused, repeated.is_reused, false) AS is_reused,
    repeated.ids IS NULL AND place IN (SELECT never_visible.place FROM never_visible) AS is_never_visible
FROM request LEFT JOIN decided USING (place) LEFT JOIN repeated USING (place) ORDER BY place
