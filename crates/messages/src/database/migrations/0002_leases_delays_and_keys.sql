-- Settings of a queue. Without attempts, or when the queue for dead letters is gone, a message may be tried for ever.
ALTER TABLE queue
    ADD COLUMN attempts integer,
    ADD COLUMN dead_letters_id integer,
    ADD COLUMN expiry_ms bigint,
    ADD COLUMN lease_ms bigint;

ALTER TABLE message
    ADD COLUMN expires_at timestamptz,
    ADD COLUMN attempts integer NOT NULL DEFAULT 0;

-- Only messages that expire are in it.
CREATE INDEX message_expiry ON message (expires_at) WHERE expires_at IS NOT NULL;

-- What nobody may have now: messages under a lease, and those without one whose time has not come. Rows that change and come back
-- would spoil the indexes that pops go along; so they lie here until they are due.
CREATE TABLE held (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    receiver text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    sent_at timestamptz NOT NULL,
    body bytea NOT NULL,
    expires_at timestamptz,
    attempts integer NOT NULL,
    due_at timestamptz NOT NULL,
    lease uuid,
    PRIMARY KEY (queue_id, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX held_due ON held (due_at);

-- What was sent with a key that makes a repetition harmless.
CREATE TABLE send_key (
    queue_id integer NOT NULL,
    sender text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    content bytea NOT NULL,
    ids bigint[] NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (queue_id, sender, key)
);

CREATE INDEX send_key_age ON send_key (made_at);
