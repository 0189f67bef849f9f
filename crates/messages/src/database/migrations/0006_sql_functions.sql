-- Functions with which applications send and take messages in their own transactions. docs/messages-sql.md describes them. A later step that
-- changes the tables must also replace the functions: their callers hold no fence.
--
-- The functions run with the rights of their owner, so their search path is fixed: the schema with the tables, and the temporary schema last.
-- If the tables were dropped and are created again, the functions and their grants may still exist.
-- As on the connections of a service, statistics of an empty table cause no plans that read whole tables.
SELECT set_config('search_path', quote_ident(nspname) || ', pg_temp', true)
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE pg_class.oid = to_regclass('queue');

-- The functions of this step have this comment. Those of other programs are neither replaced nor granted.
SELECT set_config('waystage.functions', '{waystage_refuse,waystage_check_name,waystage_check_time,waystage_hold_queue,waystage_store,'
    || 'waystage_send,waystage_send_batch,waystage_take,waystage_check_fetch,waystage_pop,waystage_receive,waystage_acknowledge,waystage_grant}', true);
DO $$
DECLARE
    theirs regprocedure;
BEGIN
    SELECT p.oid INTO theirs FROM pg_proc AS p
    WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
        AND p.proname = ANY (current_setting('waystage.functions')::text[])
        AND obj_description(p.oid, 'pg_proc') IS DISTINCT FROM 'Waystage message service'
    LIMIT 1;
    IF theirs IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'WS007',
            MESSAGE = format('another program has the function %s, whose name the service needs; rename or drop it', theirs);
    END IF;
END $$;

-- The limits of the functions. A service has limits of its own.
CREATE TABLE IF NOT EXISTS waystage_sql_limits (
    is_only_row boolean PRIMARY KEY DEFAULT true CHECK (is_only_row),
    body_bytes integer NOT NULL DEFAULT 262144 CHECK (body_bytes BETWEEN 0 AND 268435456),
    batch_messages integer NOT NULL DEFAULT 100 CHECK (batch_messages > 0),
    delay_max interval NOT NULL DEFAULT '15 days' CHECK (delay_max BETWEEN '0' AND '100 years'),
    expiry_max interval NOT NULL DEFAULT '400 days' CHECK (expiry_max BETWEEN '0' AND '100 years'),
    lease_max interval NOT NULL DEFAULT '12 hours' CHECK (lease_max BETWEEN '0' AND '100 years')
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off);

INSERT INTO waystage_sql_limits DEFAULT VALUES ON CONFLICT DO NOTHING;

DO $$
BEGIN
    IF to_regtype('waystage_message') IS NULL THEN
        CREATE TYPE waystage_message AS (
            id bigint, sender text, receiver text, sent_at timestamptz, body bytea, dead_letter jsonb, lease_token text, attempt integer
        );
        -- Not the type of the table, which could then not be dropped without the functions.
        CREATE TYPE waystage_taken AS (
            id bigint, queue_id integer, receiver text, sender text, sent_at timestamptz, body bytea, expires_at timestamptz,
            attempts integer, lease_secret uuid, first_received_at timestamptz, dead_letter jsonb
        );
    END IF;
END $$;

-- Errors have the types of the service's problem documents in their detail.
CREATE OR REPLACE FUNCTION waystage_refuse(sqlstate_of text, problem text, message text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = sqlstate_of, MESSAGE = message, DETAIL = 'urn:waystage:problem:' || problem;
END $$;

CREATE OR REPLACE FUNCTION waystage_check_name(what text, name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- The encoding of the database has no part in this: the pattern allows only ASCII characters.
    IF name IS NULL OR length(name) > 80 OR name COLLATE "C" !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]*$' THEN
        PERFORM waystage_refuse('WS002', 'invalid-name', what
            || ': a name has 1 to 80 characters, letters, digits, ''_'', ''-'' and ''.'', and does not start with ''-'' or ''.''');
    END IF;
END $$;

-- A duration in milliseconds, rounded up.
CREATE OR REPLACE FUNCTION waystage_check_time(what text, given interval, longest interval, shortest_ms bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    given_ms numeric := ceil(extract(epoch FROM given) * 1000);
BEGIN
    IF given_ms IS NULL OR given_ms < shortest_ms THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', what || CASE shortest_ms WHEN 0 THEN ': it must not be null or negative'
            ELSE ': it must be longer than 0' END);
    ELSIF given_ms > extract(epoch FROM longest) * 1000 THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', what || ': the longest is ' || longest);
    END IF;
    RETURN given_ms;
END $$;

-- The number of a queue. Until the transaction ends, the queue's row stays, even if the queue is deleted, so that the cleanup also deletes
-- the messages of this transaction. The cleanup looks for this lock. The first number of the lock is arbitrary but must stay the same.
CREATE OR REPLACE FUNCTION waystage_hold_queue(queue_name text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    queue_id integer;
BEGIN
    PERFORM waystage_check_name('queue', queue_name);
    SELECT q.id INTO queue_id FROM queue AS q WHERE q.name = queue_name AND q.deleted_at IS NULL;
    IF queue_id IS NOT NULL THEN
        PERFORM pg_advisory_xact_lock_shared(1463943168, queue_id);
        -- With a new snapshot: the queue may have been deleted and forgotten before the lock.
        SELECT q.id INTO queue_id FROM queue AS q WHERE q.id = queue_id AND q.deleted_at IS NULL;
    END IF;
    IF queue_id IS NULL THEN
        PERFORM waystage_refuse('WS003', 'unknown-queue', 'no queue has this name: ' || queue_name);
    END IF;
    RETURN queue_id;
END $$;

-- The send of all functions. Returns the ids of the messages, or those of the first send with this key.
CREATE OR REPLACE FUNCTION waystage_store(
    queue_name text, bodies bytea[], sent_by text, receivers text[], delay_of_all interval, expiry_of_all interval, send_key text
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    limits waystage_sql_limits;
    number integer := cardinality(bodies);
    to_queue integer;
    delay_ms bigint;
    lifetime_ms bigint;
    hash bytea;
    known_ids bigint[];
    known_hash bytea;
    new_ids bigint[];
    -- Not the start of the transaction, which can be long ago.
    sent timestamptz := clock_timestamp();
BEGIN
    SELECT * INTO STRICT limits FROM waystage_sql_limits WHERE is_only_row;
    IF number IS NULL OR number = 0 OR number > limits.batch_messages THEN
        PERFORM waystage_refuse('WS001', 'invalid-request',
            format('bodies: there are %s; a batch has 1 to %s', coalesce(number, 0), limits.batch_messages));
    ELSIF array_ndims(bodies) > 1 OR array_ndims(receivers) > 1 OR cardinality(receivers) <> number THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', 'receivers: give as many as bodies, both as plain arrays');
    ELSIF array_position(bodies, NULL) IS NOT NULL THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', 'body: it must not be null');
    ELSIF (SELECT max(length(t.body)) FROM unnest(bodies) AS t (body)) > limits.body_bytes THEN
        PERFORM waystage_refuse('WS004', 'body-too-large', format('the limit is %s bytes', limits.body_bytes));
    ELSIF send_key IS NOT NULL AND (length(send_key) > 80 OR send_key COLLATE "C" !~ '^[!-~]+$') THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', 'key: give 1 to 80 visible characters, or null');
    END IF;
    PERFORM waystage_check_name('sender', sent_by);
    receivers := coalesce(receivers, array_fill(NULL::text, ARRAY[number]));
    PERFORM waystage_check_name('receiver', t.receiver) FROM unnest(receivers) AS t (receiver) WHERE t.receiver IS NOT NULL;
    receivers := ARRAY(SELECT coalesce(t.receiver, '') FROM unnest(receivers) WITH ORDINALITY AS t (receiver, nth) ORDER BY nth);
    delay_ms := waystage_check_time('delay', delay_of_all, limits.delay_max, 0);
    IF expiry_of_all IS NOT NULL THEN
        lifetime_ms := waystage_check_time('expiry', expiry_of_all, limits.expiry_max, 1);
        IF lifetime_ms <= delay_ms THEN
            PERFORM waystage_refuse('WS005', 'never-visible', 'expiry: it must be longer than the delay');
        END IF;
    END IF;
    to_queue := waystage_hold_queue(queue_name);
    lifetime_ms := coalesce(lifetime_ms, (SELECT q.expiry_ms FROM queue AS q WHERE q.id = to_queue));

    IF send_key IS NOT NULL THEN
        hash := (SELECT sha256(string_agg(sha256(convert_to(t.receiver, 'UTF8')) || sha256(t.body), ''::bytea ORDER BY t.nth))
            FROM unnest(receivers, bodies) WITH ORDINALITY AS t (receiver, body, nth));
    END IF;
    IF lifetime_ms <= delay_ms THEN
        -- The delay and the expiry of the first send with a key apply.
        SELECT k.ids, k.content_hash INTO known_ids, known_hash FROM idempotency_key AS k
        WHERE k.queue_id = to_queue AND k.sender = sent_by AND k.key = send_key FOR UPDATE;
        IF known_ids IS NULL THEN
            PERFORM waystage_refuse('WS005', 'never-visible', 'delay: it must be shorter than the expiry of the queue');
        END IF;
    ELSE
        -- In this order, because services rely on it: the transaction id, the lock of the table, and only then the ids. Otherwise a service
        -- could move its low-water mark past these messages before they are committed (docs/messages-design.md).
        PERFORM pg_current_xact_id();
        LOCK TABLE message IN ROW EXCLUSIVE MODE;
        new_ids := ARRAY(SELECT nextval('message_id') FROM generate_series(1, number));
        IF send_key IS NOT NULL THEN
            INSERT INTO idempotency_key AS k (queue_id, sender, key, content_hash, ids, created_at)
            VALUES (to_queue, sent_by, send_key, hash, new_ids, sent)
            ON CONFLICT ON CONSTRAINT idempotency_key_pkey DO UPDATE SET ids = k.ids
            RETURNING k.ids, k.content_hash INTO known_ids, known_hash;
        END IF;
    END IF;
    IF send_key IS NOT NULL AND known_ids IS DISTINCT FROM new_ids THEN
        IF known_hash <> hash THEN
            PERFORM waystage_refuse('WS006', 'idempotency-key-reused', 'this key was used for a send with other bodies or receivers');
        END IF;
        RETURN known_ids;
    END IF;

    IF delay_ms > 0 THEN
        INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, due_at)
        SELECT t.id, to_queue, t.receiver, sent_by, sent, t.body, sent + lifetime_ms * interval '1 millisecond', 0,
            sent + delay_ms * interval '1 millisecond'
        FROM unnest(new_ids, receivers, bodies) AS t (id, receiver, body);
    ELSE
        INSERT INTO message (id, queue_id, receiver, sender, sent_at, body, expires_at)
        SELECT t.id, to_queue, t.receiver, sent_by, sent, t.body, sent + lifetime_ms * interval '1 millisecond'
        FROM unnest(new_ids, receivers, bodies) AS t (id, receiver, body);
        -- Wakes the polls of all services at the commit. No service has the name `sql`.
        IF current_setting('waystage.notify', true) IS DISTINCT FROM 'off' THEN
            PERFORM pg_notify('waystage_messages_' || quote_ident(current_schema())::regnamespace::oid, 'sql changed ' || queue_name);
        END IF;
    END IF;
    RETURN new_ids;
END $$;

CREATE OR REPLACE FUNCTION waystage_send(
    queue text, body bytea, sender text, receiver text DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL, key text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN (waystage_store(queue, ARRAY[body], sender, ARRAY[receiver], delay, expiry, key))[1];
END $$;

CREATE OR REPLACE FUNCTION waystage_send(
    queue text, body text, sender text, receiver text DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL, key text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN (waystage_store(queue, ARRAY[convert_to(body, 'UTF8')], sender, ARRAY[receiver], delay, expiry, key))[1];
END $$;

CREATE OR REPLACE FUNCTION waystage_send(
    queue text, body jsonb, sender text, receiver text DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL, key text DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN (waystage_store(queue, ARRAY[convert_to(body::text, 'UTF8')], sender, ARRAY[receiver], delay, expiry, key))[1];
END $$;

CREATE OR REPLACE FUNCTION waystage_send_batch(
    queue text, bodies bytea[], sender text, receivers text[] DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL,
    key text DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN waystage_store(queue, bodies, sender, receivers, delay, expiry, key);
END $$;

CREATE OR REPLACE FUNCTION waystage_send_batch(
    queue text, bodies text[], sender text, receivers text[] DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL,
    key text DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN waystage_store(queue,
        ARRAY(SELECT convert_to(t.body, 'UTF8') FROM unnest(bodies) WITH ORDINALITY AS t (body, nth) ORDER BY nth),
        sender, receivers, delay, expiry, key);
END $$;

CREATE OR REPLACE FUNCTION waystage_send_batch(
    queue text, bodies jsonb[], sender text, receivers text[] DEFAULT NULL, delay interval DEFAULT '0', expiry interval DEFAULT NULL,
    key text DEFAULT NULL
) RETURNS bigint[] LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
BEGIN
    RETURN waystage_store(queue,
        ARRAY(SELECT convert_to(t.body::text, 'UTF8') FROM unnest(bodies) WITH ORDINALITY AS t (body, nth) ORDER BY nth),
        sender, receivers, delay, expiry, key);
END $$;

-- Takes out the oldest messages to this receiver or to anyone that no other transaction has locked. Each message is chosen alone, so that at
-- most one message beyond those that are taken stays locked until the transaction ends.
CREATE OR REPLACE FUNCTION waystage_take(from_queue integer, for_receiver text, number integer) RETURNS SETOF waystage_taken LANGUAGE plpgsql AS $$
DECLARE
    own_id bigint;
    own_row tid;
    shared_id bigint;
    shared_row tid;
    last_own bigint := 0;
    last_shared bigint := 0;
    chosen tid;
    taken waystage_taken;
BEGIN
    FOR nth IN 1..number LOOP
        IF for_receiver <> '' AND own_id IS NULL THEN
            SELECT m.id, m.ctid INTO own_id, own_row FROM message AS m
            WHERE m.queue_id = from_queue AND m.receiver = for_receiver AND m.id > last_own
                AND (m.expires_at IS NULL OR m.expires_at > clock_timestamp())
            ORDER BY m.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        END IF;
        SELECT m.id, m.ctid INTO shared_id, shared_row FROM message AS m
        WHERE m.queue_id = from_queue AND m.receiver = '' AND m.id > last_shared
            AND m.id < coalesce(own_id, 9223372036854775807)
            AND (m.expires_at IS NULL OR m.expires_at > clock_timestamp())
        ORDER BY m.id LIMIT 1 FOR UPDATE SKIP LOCKED;
        IF FOUND THEN
            chosen := shared_row;
            last_shared := shared_id;
        ELSIF own_id IS NOT NULL THEN
            chosen := own_row;
            last_own := own_id;
            own_id := NULL;
        ELSE
            EXIT;
        END IF;
        DELETE FROM message AS m WHERE m.ctid = chosen RETURNING m.id, m.queue_id, m.receiver, m.sender, m.sent_at, m.body, m.expires_at,
            m.attempts, m.lease_secret, m.first_received_at, m.dead_letter INTO STRICT taken;
        IF taken.lease_secret IS NOT NULL THEN
            -- From now on, the previous holder of this message, whose lease has expired, cannot acknowledge it.
            INSERT INTO lost_lease (queue_id, id, secret) VALUES (taken.queue_id, taken.id, taken.lease_secret) ON CONFLICT DO NOTHING;
        END IF;
        RETURN NEXT taken;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION waystage_check_fetch(receiver text, max integer) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    most integer := (SELECT batch_messages FROM waystage_sql_limits WHERE is_only_row);
BEGIN
    IF receiver IS NOT NULL THEN
        PERFORM waystage_check_name('receiver', receiver);
    END IF;
    IF max IS NULL OR max NOT BETWEEN 1 AND most THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', 'max: it must be 1 to ' || most);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION waystage_pop(queue text, receiver text DEFAULT NULL, max integer DEFAULT 1) RETURNS SETOF waystage_message
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_variable
BEGIN
    PERFORM waystage_check_fetch(receiver, max);
    RETURN QUERY SELECT m.id, m.sender::text, m.receiver::text, m.sent_at, m.body, m.dead_letter, NULL::text, NULL::integer
        FROM waystage_take(waystage_hold_queue(queue), coalesce(receiver, ''), max) AS m;
END $$;

CREATE OR REPLACE FUNCTION waystage_receive(queue text, receiver text DEFAULT NULL, max integer DEFAULT 1, lease interval DEFAULT NULL)
RETURNS SETOF waystage_message LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    from_queue integer;
    lease_ms bigint;
    secret uuid;
    taken waystage_taken;
BEGIN
    PERFORM waystage_check_fetch(receiver, max);
    IF lease IS NOT NULL THEN
        lease_ms := waystage_check_time('lease', lease, (SELECT l.lease_max FROM waystage_sql_limits AS l WHERE l.is_only_row), 1);
    END IF;
    from_queue := waystage_hold_queue(queue);
    lease_ms := coalesce(lease_ms, (SELECT q.lease_ms FROM queue AS q WHERE q.id = from_queue), 30000);
    FOR taken IN SELECT * FROM waystage_take(from_queue, coalesce(receiver, ''), max) LOOP
        secret := gen_random_uuid();
        INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, expires_at, attempts, due_at, lease_secret,
            first_received_at, received_at, dead_letter)
        VALUES (taken.id, from_queue, taken.receiver, taken.sender, taken.sent_at, taken.body, taken.expires_at, taken.attempts + 1,
            clock_timestamp() + lease_ms * interval '1 millisecond', secret,
            coalesce(taken.first_received_at, clock_timestamp()), clock_timestamp(), taken.dead_letter);
        RETURN NEXT ROW(taken.id, taken.sender, taken.receiver, taken.sent_at, taken.body, taken.dead_letter,
            lpad(to_hex(from_queue), 8, '0') || lpad(to_hex(taken.id), 16, '0') || replace(secret::text, '-', ''),
            taken.attempts + 1)::waystage_message;
    END LOOP;
END $$;

-- Deletes the message of a lease. True also if it was deleted before; false if the lease was lost, as 410 of the service.
CREATE OR REPLACE FUNCTION waystage_acknowledge(lease_token text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
    of_queue integer;
    of_message bigint;
    held_by uuid;
BEGIN
    IF lease_token IS NULL OR lease_token COLLATE "C" !~ '^[0-7][0-9a-f]{7}[0-7][0-9a-f]{47}$' THEN
        RETURN false;
    END IF;
    of_queue := ('x' || substr(lease_token, 1, 8))::bit(32)::integer;
    of_message := ('x' || substr(lease_token, 9, 16))::bit(64)::bigint;
    held_by := substr(lease_token, 25)::uuid;
    -- Another transaction can move the message between the tables. Each statement has a new snapshot.
    FOR attempt IN 1..10 LOOP
        DELETE FROM invisible_message AS m WHERE m.queue_id = of_queue AND m.id = of_message AND m.lease_secret = held_by;
        IF FOUND THEN
            RETURN true;
        END IF;
        DELETE FROM message AS m WHERE m.queue_id = of_queue AND m.id = of_message AND m.lease_secret = held_by;
        IF FOUND THEN
            RETURN true;
        END IF;
        IF NOT EXISTS (SELECT FROM queue AS q WHERE q.id = of_queue)
            OR EXISTS (SELECT FROM lost_lease AS l WHERE l.queue_id = of_queue AND l.id = of_message AND l.secret = held_by)
            OR EXISTS (SELECT FROM invisible_message AS m WHERE m.queue_id = of_queue AND m.id = of_message
                AND m.lease_secret IS DISTINCT FROM held_by)
        THEN
            RETURN false;
        END IF;
        EXIT WHEN NOT EXISTS (SELECT FROM invisible_message AS m WHERE m.queue_id = of_queue AND m.id = of_message)
            AND NOT EXISTS (SELECT FROM message AS m WHERE m.queue_id = of_queue AND m.id = of_message AND m.lease_secret = held_by);
    END LOOP;
    RETURN true;
END $$;

-- Grants the functions to a role. Its caller must own them.
CREATE OR REPLACE FUNCTION waystage_grant(role name, permission text) RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    names text[] := CASE permission
        WHEN 'send' THEN '{waystage_send,waystage_send_batch}'
        WHEN 'receive' THEN '{waystage_pop,waystage_receive,waystage_acknowledge}'
    END;
    found regprocedure;
BEGIN
    IF names IS NULL THEN
        PERFORM waystage_refuse('WS001', 'invalid-request', 'permission: give ''send'' or ''receive''');
    END IF;
    IF NOT has_schema_privilege(role, current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    END IF;
    FOR found IN SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.proname = ANY (names)
            AND obj_description(p.oid, 'pg_proc') = 'Waystage message service'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', found, role);
    END LOOP;
END $$;

-- By default, every role could execute them.
DO $$
DECLARE
    created regprocedure;
BEGIN
    FOR created IN SELECT p.oid FROM pg_proc AS p
        WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.proname = ANY (current_setting('waystage.functions')::text[])
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', created);
        EXECUTE format('COMMENT ON FUNCTION %s IS %L', created, 'Waystage message service');
    END LOOP;
END $$;
