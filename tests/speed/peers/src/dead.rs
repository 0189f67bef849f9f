//! A queue full of messages of which most are taken out while an old snapshot is held open: its dead rows stay. Done past the systems, in
//! one statement each, for the system's own table.

use axum::http::StatusCode;
use std::sync::{Mutex, PoisonError};
use tokio_postgres::{Client, Config, NoTls};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Number of messages, and how many of them are left.
const FILL: [(&str, &str, &str); 2] = [
    (
        "service",
        "INSERT INTO message (id, queue_id, receiver, sender, body)
         SELECT nextval('message_id'), queue.id, '', 's', convert_to(repeat('x', 200), 'UTF8')
         FROM queue, generate_series(1, {messages}) WHERE name = 'q' AND deleted_at IS NULL",
        "DELETE FROM message WHERE id <= (SELECT max(id) FROM message) - {left}",
    ),
    (
        "pgmq",
        "INSERT INTO pgmq.q_q (vt, message) SELECT now(), to_jsonb(repeat('x', 198)) FROM generate_series(1, {messages})",
        "DELETE FROM pgmq.q_q WHERE msg_id <= (SELECT max(msg_id) FROM pgmq.q_q) - {left}",
    ),
];

/// Keeps a snapshot open.
pub(crate) struct Dead {
    config: Config,
    snapshot: Mutex<Option<Client>>,
}

impl Dead {
    pub(crate) fn new(config: &Config) -> Dead {
        Dead { config: config.clone(), snapshot: Mutex::default() }
    }

    /// `fill SYSTEM MESSAGES`, `hold`, `empty SYSTEM LEFT`, `release`.
    pub(crate) async fn does(&self, words: &str) -> (StatusCode, String) {
        match self.tried(words).await {
            Ok(()) => (StatusCode::OK, String::new()),
            Err(error) => (StatusCode::BAD_REQUEST, error.to_string()),
        }
    }

    async fn tried(&self, words: &str) -> Result<(), Failure> {
        let words: Vec<&str> = words.split_whitespace().collect();
        match words.as_slice() {
            ["hold"] => {
                let client = self.connect().await?;
                client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class").await?;
                *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
            }
            ["release"] => *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = None,
            [what @ ("fill" | "empty"), system, number] => {
                let number: u64 = number.parse()?;
                let found = FILL.iter().find(|(name, _, _)| name == system).ok_or("no such system")?;
                let text = match *what {
                    "fill" => found.1.replace("{messages}", &number.to_string()),
                    _ => found.2.replace("{left}", &number.to_string()),
                };
                self.connect().await?.batch_execute(&text).await?;
            }
            _ => return Err("unknown words".into()),
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Client, Failure> {
        let (client, connection) = self.config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }
}
