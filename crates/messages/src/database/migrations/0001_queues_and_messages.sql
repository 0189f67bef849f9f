-- A deleted queue keeps its row until its messages are deleted, because a concurrent send may still commit.
CREATE TABLE queue (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz
);

CREATE UNIQUE INDEX queue_live_name ON queue (name) WHERE deleted_at IS NULL;

-- An empty receiver means anyone. There is no foreign key, because its check would lock the queue's row once for every message.
CREATE TABLE message (
    id bigint NOT NULL,
    queue_id integer NOT NULL,
    receiver text COLLATE "C" NOT NULL,
    sender text COLLATE "C" NOT NULL,
    sent_at timestamptz NOT NULL DEFAULT now(),
    body bytea NOT NULL,
    PRIMARY KEY (queue_id, receiver, id)
) WITH (
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX message_by_sender ON message (receiver, sender, id);

CREATE SEQUENCE message_id OWNED BY message.id;
