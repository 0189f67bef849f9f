-- Settings of a queue. Without attempts or an existing dead-letter queue, the number of attempts is unlimited.
ALTER TABLE queue
    ADD COLUMN attempts integer,
    ADD COLUMN dead_letter_queue_id integer,
    ADD COLUMN expiry_ms bigint,
    ADD COLUMN lease_ms bigint;

ALTER TABLE message
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN attempts integer NOT NULL DEFAULT 0;

-- A partial index, so that messages without an expiry cost nothing.
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL;

-- Messages that cannot be received now: in flight (leased) or delayed. They are not rows of message, because updates in place would leave
-- dead rows in the indexes that pops scan. They stay here until they are due.
CREATE TABLE invisible_message (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    receiver text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    sent_at timestamptz NOT NULL,
    body bytea NOT NULL,
    expires_at timestamptz,
    attempts integer NOT NULL,
    due_at timestamptz NOT NULL,
    lease_secret uuid,
    PRIMARY KEY (queue_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX invisible_message_due ON invisible_message (due_at);

-- The idempotency keys of sends.
CREATE TABLE idempotency_key (
    queue_id integer NOT NULL,
    sender text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    content_hash bytea NOT NULL,
    ids bigint[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue_id, sender, key)
);

CREATE INDEX idempotency_key_age ON idempotency_key (created_at);
