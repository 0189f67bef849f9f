-- Stores one message, without the cost of the batch statement. Returns no row if the queue does not exist. The transaction id is assigned
-- before the message id is drawn.
INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)
SELECT nextval('message_id'), queue.id, $2, $3, $4, now() + queue.expiry_ms * interval '1 millisecond' FROM queue
WHERE name = $1 AND deleted_at IS NULL AND pg_current_xact_id() IS NOT NULL
RETURNING id
