-- One message, without what it takes to tell many apart. A queue that is not there gives no row. The transaction has its number before
-- it draws the id.
INSERT INTO message (id, queue_id, receiver, sender, body, expires_at)
SELECT nextval('message_id'), queue.id, $2, $3, $4, now() + queue.expiry_ms * interval '1 millisecond' FROM queue
WHERE name = $1 AND deleted_at IS NULL AND pg_current_xact_id() IS NOT NULL
RETURNING id
