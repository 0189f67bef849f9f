//! Checks that every statement uses indexes and reads few pages, in empty, small and large tables, with and without statistics. The
//! statements are those that the connections have prepared, so none can be forgotten.

use crate::database::cleanup;
use crate::database::connection::Database;
use crate::database::low_water_reader::Reader;
use crate::database::redelivery::RedeliverySession;
use crate::embedded::test_server::TestServer;
use clock::Clock;
use std::time::Duration;
use tokio_postgres::Client;

/// Number of messages in a large table; `WAYSTAGE_PLAN_MESSAGES` overrides it.
const MESSAGES: u64 = 10_000;
/// Number of messages in a small table.
const FEW_MESSAGES: u64 = 1000;
/// The data are deleted afterwards. Statistics are collected only by the test.
const SETTINGS: [&str; 4] = ["fsync=off", "autovacuum=off", "max_wal_size=8GB", "shared_buffers=256MB"];

/// The statements that a connection keeps. Others look at the schema and at the server.
const PREPARED: &str = "SELECT statement FROM pg_prepared_statements
    WHERE statement !~ 'pg_prepared_statements|to_regclass|waystage_schema|last_value|pg_stat_activity|pg_advisory|^SELECT pg_current_xact_id'";
/// Pages that the current transaction has read, in memory or not.
const PAGES: &str = "SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint FROM pg_class
    WHERE relkind IN ('r', 'i', 'S') AND relnamespace = 'public'::regnamespace";

/// A part of a statement's text, its arguments, and the limit of the pages that it reads. The first match counts.
const CASES: &[(&str, &str, i64)] = &[
    ("-- Stores one message", "'q1', '', 'alice', 'x'", 60),
    ("-- Ids are drawn in the order", "'{q1}', '{\"\"}', '{alice}', '{x}'", 60),
    ("ON CONFLICT (queue_id, sender, key)", "'{q1}', '{alice}', '{k0}', '{1}', '{\"\"}', '{x}', '{0}', '{0}'", 60),
    ("SELECT id, $2, $3, '', '{}' FROM queue", "'q1', 'alice', 'new'", 60),
    ("-- Pops the oldest messages of one", "'q1', 1, 0, 0, 0", 60),
    ("leased AS", "'{0}', '{q1}', '{bob}', '{alice}', '{1}', '{0}', '{0}', '{0}', '{0}', '{0}'", 120),
    ("-- Each fetch takes", "'{0}', '{q1}', '{bob}', '{alice}', '{1}', '{0}', '{0}', '{0}', '{0}'", 120),
    ("-- Reads the oldest messages", "'{q1}', '{bob}', '{alice}', '{1}'", 60),
    ("-- Deletes messages of leases", "'{1}', '{1000000004}', '{{secret}}'", 60),
    ("-- Extends leases", "'{1}', '{1000000004}', '{{secret}}', '{1}'", 60),
    ("-- Nacks leases", "'{2}', '{1000000005}', '{{secret}}', '{0}', true", 60),
    ("-- The indices of leases", "'{1}', '{1000000004}', '{{secret}}'", 60),
    // These look at many queues or messages, up to a limit.
    ("-- For each receiver, the queues", "'{bob}', '', 1000, NULL, 10000", 120_000),
    ("-- A page of the names", "'', 1000, NULL", 1200),
    ("-- A queue's settings and counts", "'q1', 10001", 45_000),
    ("INSERT INTO queue (name) SELECT", "'new'", 60),
    ("-- Creates or changes a queue", "'new', NULL, NULL, NULL, NULL, NULL", 60),
    ("UPDATE queue SET deleted_at", "'q1'", 60),
    // A batch of 500 messages.
    ("-- Handles a batch of messages that are due", "0, '{}', '{}', '{}', '{}', '{}', 500", 30_000),
    ("SELECT queue_id, id FROM invisible_message", "0, '{}', '{}', '{}', '{}', '{}'", 60),
    ("FROM message\n    WHERE expires_at <= now()", "0, 50000", 110_000),
    ("DELETE FROM message WHERE ctid = ANY (ARRAY(\n    SELECT ctid FROM message", "'{\"(0,1)\"}'", 60),
    ("due_at - now()", "0, '{}', '{}', '{}', '{}', '{}'", 60),
    ("-- Ends the eras", "'{q1}'", 60),
    ("-- The oldest message of each queue", "0, '{q1}', '{\"\"}', '{0}', '{0}', '{0}'", 60),
    // Batches of 5000 rows.
    ("SELECT found.row FROM queue CROSS JOIN LATERAL", "", 30_000),
    ("LIMIT 5000 FOR UPDATE SKIP LOCKED", "86400000", 60),
    ("DELETE FROM queue WHERE deleted_at", "'{}'", 60),
];
/// Statements that look rows up by key, also if the statistics say that the tables are empty. Others can then sort a whole table.
const LOOKUPS: [&str; 6] = [
    "-- Deletes messages of leases",
    "-- Extends leases",
    "-- Nacks leases",
    "-- The indices of leases",
    "DELETE FROM message WHERE ctid = ANY (ARRAY(\n    SELECT ctid FROM message",
    "DELETE FROM queue WHERE deleted_at",
];
const SECRET: &str = "00000000-0000-0000-0000-000000000001";

const EMPTY: &str = "SET statement_timeout = 0;
    TRUNCATE queue, message, invisible_message, idempotency_key, lost_lease RESTART IDENTITY";
/// Afterwards the statistics say that the tables are empty, although their files are not. So they are after a quiet time.
const DRAIN: [&str; 2] = [
    "DELETE FROM queue; DELETE FROM message; DELETE FROM invisible_message; DELETE FROM idempotency_key;
    DELETE FROM lost_lease; ALTER TABLE queue ALTER id RESTART",
    "VACUUM ANALYZE",
];

/// Fills all tables: a quarter of the rows belongs to a deleted queue, every tenth message was received before, and every hundredth has
/// expired.
const FILL: &str = "SELECT setval('message_id', 2000000000);
    INSERT INTO queue (name, deleted_at) SELECT 'q' || g, CASE WHEN g = 4 THEN now() - interval '1 hour' END
        FROM generate_series(1, {messages} / 10) AS g;
    INSERT INTO message (id, queue_id, receiver, sender, body, expires_at, lease_secret)
        SELECT g, 1 + g % 4, CASE WHEN g % 8 < 4 THEN 'bob' ELSE '' END, 'alice', 'x',
            CASE WHEN g % 10 = 0 THEN now() + CASE WHEN g % 100 = 0 THEN interval '-1 s' ELSE interval '1 h' END END,
            CASE WHEN g % 10 = 1 THEN '{secret}'::uuid END
        FROM generate_series(1, {messages}) AS g;
    INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, attempts, due_at, lease_secret)
        SELECT 1000000000 + g, 1 + g % 4, '', 'alice', now(), 'x', 1, now(), '{secret}' FROM generate_series(1, {messages}) AS g;
    INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids)
        SELECT 1 + g % 4, 'alice', 'k' || g, '', '{1}' FROM generate_series(1, {messages} / 10) AS g;
    INSERT INTO lost_lease (queue_id, id, secret)
        SELECT 1 + g % 4, g, '{secret}' FROM generate_series(1, {messages} / 10) AS g";

/// The statements of a connection for requests, of the background loops, and of the cleanup, which prepares none.
async fn statements(database: &Database) -> Vec<String> {
    let clock = Clock::monotonic();
    let (session, mut driver) = database.connect(&clock).await.unwrap();
    let redelivery = RedeliverySession::open(database).await.unwrap().unwrap();
    let reader = Reader::open(database, &clock).await.unwrap();
    let mut rows = driver.drive(session.client.query(PREPARED, &[])).await.unwrap();
    rows.extend(redelivery.client.query(PREPARED, &[]).await.unwrap());
    rows.extend(reader.client.query(PREPARED, &[]).await.unwrap());
    let mut statements: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    statements.extend(cleanup::pieces());
    statements.extend([cleanup::KEYS, cleanup::LOST_LEASES, cleanup::FORGET].map(String::from));
    statements
}

/// Checks the plan of a statement, and returns the pages that it reads.
async fn pages(client: &Client, statement: &str, arguments: &str) -> (String, i64) {
    let call = if arguments.is_empty() { "EXECUTE p".to_string() } else { format!("EXECUTE p ({arguments})") };
    client.batch_execute(&format!("DEALLOCATE ALL; PREPARE p AS {statement}")).await.unwrap();
    let rows = client.simple_query(&format!("EXPLAIN {call}")).await.unwrap();
    let lines = rows.iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let plan = lines.collect::<Vec<_>>().join("\n");
    client.batch_execute("BEGIN").await.unwrap();
    let before: i64 = client.query_one(PAGES, &[]).await.unwrap().get(0);
    client.batch_execute(&call).await.unwrap();
    let after: i64 = client.query_one(PAGES, &[]).await.unwrap().get(0);
    client.batch_execute("ROLLBACK").await.unwrap();
    (plan, after - before)
}

#[tokio::test]
async fn plans_use_indexes_and_read_few_pages() {
    let Some(server) = TestServer::start_with(&SETTINGS) else { return };
    let database = Database::parse(&server.url(), None, Duration::from_secs(10)).unwrap();
    let statements = statements(&database).await;
    assert!(statements.len() >= CASES.len(), "{statements:#?}");
    let client = database.connect_to_check().await.unwrap();
    let many = std::env::var("WAYSTAGE_PLAN_MESSAGES").map_or(MESSAGES, |text| text.parse().unwrap());
    let fill = |messages: u64| FILL.replace("{messages}", &messages.to_string()).replace("{secret}", SECRET);
    for messages in [0, FEW_MESSAGES.min(many), many] {
        client.batch_execute(EMPTY).await.unwrap();
        client.batch_execute(&fill(messages)).await.unwrap();
        check(&client, &statements, &format!("{messages} messages, without statistics")).await;
        client.batch_execute("VACUUM ANALYZE").await.unwrap();
        check(&client, &statements, &format!("{messages} messages, with statistics")).await;
    }
    for step in DRAIN {
        client.batch_execute(step).await.unwrap();
    }
    client.batch_execute(&fill(MESSAGES)).await.unwrap();
    let lookups: Vec<String> =
        statements.into_iter().filter(|statement| LOOKUPS.iter().any(|part| statement.contains(part))).collect();
    check(&client, &lookups, &format!("{MESSAGES} messages, with statistics of empty tables")).await;
}

async fn check(client: &Client, statements: &[String], tables: &str) {
    let mut bad = Vec::new();
    for statement in statements {
        let case = CASES.iter().find(|(part, ..)| statement.contains(part));
        let (_, arguments, limit) = case.unwrap_or_else(|| panic!("add a case for {statement}"));
        let (plan, pages) = pages(client, statement, &arguments.replace("{secret}", SECRET)).await;
        println!("{pages} pages of at most {limit}, {tables}: {}", statement.lines().next().unwrap_or_default());
        let about = format!("{tables}, {pages} pages\n{statement}\n{plan}");
        if plan.contains("Seq Scan") || pages > *limit {
            bad.push(format!("at most {limit}: {about}"));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}
