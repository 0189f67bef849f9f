//! Checks that the plans of all statements use indexes, for empty, small and large tables.

use super::*;
use crate::database::connection::Database;
use crate::embedded::test_server::TestServer;

/// Number of messages in one queue; `WAYSTAGE_PLAN_MESSAGES` overrides it.
const MESSAGES: u64 = 1000;

fn texts() -> Vec<String> {
    let (pop, receive) = takes();
    let redeliver = include_str!("../../../database/redeliver.sql").replace("{backoff_ms}", &backoff_ms("due"));
    let mut texts = vec![
        include_str!("../send_one.sql").into(),
        include_str!("../send.sql").into(),
        include_str!("../send_with.sql").into(),
        include_str!("../pop_one.sql").into(),
        include_str!("../lost_leases.sql").into(),
        include_str!("../show.sql").into(),
        with_prefixes(include_str!("../waiting_queues.sql"), "$4"),
        with_prefixes(include_str!("../list_queues.sql"), "$3"),
        redeliver,
    ];
    texts.extend(pop.into_iter().chain(receive).chain(scoped(include_str!("../peek.sql"))).chain(lease_actions()));
    texts
}

#[tokio::test]
async fn plans_use_indexes_in_empty_and_in_large_tables() {
    let Some(server) = TestServer::start() else { return };
    let database = Database::parse(&server.url(), None, std::time::Duration::from_secs(10)).unwrap();
    drop(database.connect(&clock::Clock::monotonic()).await.unwrap());
    let many = std::env::var("WAYSTAGE_PLAN_MESSAGES").map_or(MESSAGES, |text| text.parse().unwrap());
    for messages in [0, MESSAGES.min(many), many] {
        let client = database.connect_in_background().await.unwrap();
        let fill = format!(
            "SET statement_timeout = 0; TRUNCATE queue, message, invisible_message;
             INSERT INTO queue (name) SELECT 'q' || g FROM generate_series(1, {messages} / 10) AS g;
             INSERT INTO message (id, queue_id, receiver, sender, body)
                 SELECT g, 1 + g % 3, CASE WHEN g % 2 = 0 THEN 'bob' ELSE '' END, 'alice', 'x' FROM generate_series(1, {messages}) AS g;
             INSERT INTO invisible_message (id, queue_id, receiver, sender, sent_at, body, attempts, due_at)
                 SELECT g, 1, '', 'alice', now(), 'x', 1, now() FROM generate_series(1, {messages}) AS g;
             ANALYZE"
        );
        client.batch_execute(&fill).await.unwrap();
        for (number, text) in texts().iter().enumerate() {
            let parameters = vec!["NULL"; client.prepare(text).await.unwrap().params().len()].join(", ");
            client.batch_execute(&format!("PREPARE p{number} AS {text}")).await.unwrap();
            let rows = client.query(format!("EXPLAIN EXECUTE p{number} ({parameters})").as_str(), &[]).await.unwrap();
            let lines: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
            let plan = lines.join("\n");
            let name = text.lines().next().unwrap_or_default();
            assert!(!plan.contains("Seq Scan"), "{messages} messages, {name}\n{plan}");
        }
    }
}
