DELETE FROM {table} WHERE ctid = ANY (ARRAY(
        SELECT found.row FROM request CROSS JOIN LATERAL (
            SELECT m.ctid AS row FROM {table} AS m
            WHERE m.queue_id = request.queue_id AND m.id = request.id AND m.lease_secret = request.secret FOR UPDATE
        ) AS found
    ))
    RETURNING queue_id, id, lease_secret AS secret
