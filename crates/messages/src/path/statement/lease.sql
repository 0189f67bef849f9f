, nth AS (
    -- The times of all units stand behind each other in $10: those of the first wish, those of the second ...
    SELECT id, ($10::bigint[])[(before + row_number() OVER (PARTITION BY place ORDER BY id))::integer] AS lease_ms
    FROM chosen JOIN taken USING (id) JOIN (
        SELECT place, sum(wanted) OVER (ORDER BY place) - wanted AS before FROM wish
    ) AS earlier USING (place)
), leased AS (
    INSERT INTO held (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, due_at, lease)
    SELECT taken.id, taken.queue_id, taken.receiver, taken.sender, sent_at, body, expires_at, taken.attempts + 1,
        now() + coalesce(nullif(nth.lease_ms, 0), queue.lease_ms, {default_ms}) * interval '1 millisecond', gen_random_uuid()
    FROM taken JOIN nth USING (id) JOIN queue ON queue.id = taken.queue_id
    RETURNING *
)
