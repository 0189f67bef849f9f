-- The first pause before a message is redelivered; it doubles with each attempt.
ALTER TABLE queue ADD COLUMN backoff_ms bigint;

-- lease_secret: the lease that expired before the message became visible again. Its holder can still acknowledge the message, until another
-- client takes it. dead_letter: where a dead letter comes from, and why.
ALTER TABLE message
    ADD COLUMN lease_secret uuid,
    ADD COLUMN first_received_at timestamptz,
    ADD COLUMN dead_letter jsonb;

-- A partial index, so that messages that were never received cost nothing.
CREATE INDEX message_late ON message (queue_id, id) WHERE lease_secret IS NOT NULL;

ALTER TABLE invisible_message
    ADD COLUMN first_received_at timestamptz,
    ADD COLUMN received_at timestamptz,
    ADD COLUMN is_backing_off boolean NOT NULL DEFAULT false,
    ADD COLUMN dead_letter jsonb;

-- Leases whose messages went to another client, or into a dead-letter queue, or were nacked. Acknowledgements of other leases succeed, also
-- if their messages are gone. Most messages are acknowledged in time, and leave no row here.
CREATE TABLE lost_lease (
    queue_id integer NOT NULL,
    id bigint NOT NULL,
    secret uuid NOT NULL,
    lost_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue_id, id, secret)
);

CREATE INDEX lost_lease_age ON lost_lease (lost_at);

-- Truncating an empty end of a table takes an exclusive lock, which would stop the queues, and the space is needed again.
ALTER TABLE message SET (vacuum_truncate = off);
ALTER TABLE invisible_message SET (vacuum_truncate = off);
ALTER TABLE idempotency_key SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
ALTER TABLE lost_lease SET (
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
-- Redelivery updates the rows of queues. New versions find room on the same page, so no index changes.
ALTER TABLE queue SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);
