, nth AS (
    -- $10 has the visibility timeouts of all slots: those of the first fetch, then those of the second, and so on.
    SELECT id, ($10::bigint[])[(before + row_number() OVER (PARTITION BY place ORDER BY id))::integer] AS lease_ms
    FROM chosen JOIN taken USING (id) JOIN (
        SELECT place, sum(max_messages) OVER (ORDER BY place) - max_messages AS before FROM request
    ) AS earlier USING (place)
), leased AS (
    INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, due_at, lease_secret,
        first_received_at, received_at, dead_letter)
    SELECT taken.id, taken.queue_id, taken.receiver, taken.sender, sent_at, body, expires_at, taken.attempts + 1,
        now() + coalesce(nullif(nth.lease_ms, 0), queue.lease_ms, {default_ms}) * interval '1 millisecond', gen_random_uuid(),
        coalesce(taken.first_received_at, now()), now(), taken.dead_letter
    FROM taken JOIN nth USING (id) JOIN queue ON queue.id = taken.queue_id
    RETURNING *
)
