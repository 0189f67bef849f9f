//! Station 5. Every statement, prepared once for each connection: many requests become arrays, and rows become what they say.
//! Each statement is a transaction. Its result is read to the server's last word, which it says after the commit.

use crate::work::{Message, Scope, Sending};
use std::collections::HashMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

const IN_A_QUEUE: &str = "m.queue_id = wish.queue_id";
const BY_SENDER: &str = "m.sender = wish.sender AND (m.queue_id = wish.queue_id OR (wish.queue_name = '' AND EXISTS (\
    SELECT FROM queue WHERE queue.id = m.queue_id AND deleted_at IS NULL)))";

/// All statements of one connection.
#[derive(Debug)]
pub(crate) struct Statements {
    send: Statement,
    pop: [Statement; 2],
    peek: [Statement; 2],
    waiting: Statement,
    create: Statement,
    delete: Statement,
    show: Statement,
    list: Statement,
}

/// What was found for one wish.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Its queue is not there.
    pub(crate) is_unknown: bool,
    /// Nothing was taken although something seems to be there: somebody else has it in his hands.
    pub(crate) is_contended: bool,
    /// The oldest first.
    pub(crate) messages: Vec<Message>,
}

impl Statements {
    /// Prepares them, in one round trip or two.
    pub(crate) async fn prepare(client: &Client) -> Result<Statements, Error> {
        let pop = include_str!("statement/pop.sql");
        let peek = include_str!("statement/peek.sql");
        let scoped = |text: &str| [text.replace("{scope}", IN_A_QUEUE), text.replace("{scope}", BY_SENDER)];
        let ([pop, pop_by_sender], [peek, peek_by_sender]) = (scoped(pop), scoped(peek));
        let (send, pop, pop_by_sender, peek, peek_by_sender, waiting, create, delete, show, list) = tokio::try_join!(
            client.prepare(include_str!("statement/send.sql")),
            client.prepare(&pop),
            client.prepare(&pop_by_sender),
            client.prepare(&peek),
            client.prepare(&peek_by_sender),
            client.prepare(include_str!("statement/waiting.sql")),
            client.prepare(
                "INSERT INTO queue (name) VALUES ($1) ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING RETURNING id"
            ),
            client.prepare("UPDATE queue SET deleted_at = now() WHERE name = $1 AND deleted_at IS NULL RETURNING id"),
            client.prepare("SELECT id FROM queue WHERE name = $1 AND deleted_at IS NULL"),
            client.prepare("SELECT name FROM queue WHERE deleted_at IS NULL ORDER BY name"),
        )?;
        let (pop, peek) = ([pop, pop_by_sender], [peek, peek_by_sender]);
        Ok(Statements { send, pop, peek, waiting, create, delete, show, list })
    }

    /// Stores the messages of all; the ids of each, or none where the queue is not there.
    pub(crate) async fn send(&self, client: &Client, all: &[&Sending]) -> Result<Vec<Option<Vec<i64>>>, Error> {
        let (mut queues, mut receivers, mut senders, mut bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for sending in all {
            for message in &sending.messages {
                queues.push(sending.queue.as_str());
                receivers.push(message.receiver.as_str());
                senders.push(sending.sender.as_str());
                bodies.push(message.body.as_slice());
            }
        }
        let rows = client.query(&self.send, &[&queues, &receivers, &senders, &bodies]).await?;
        let mut ids = rows.iter().map(|row| row.get::<_, Option<i64>>(1));
        let of_one = |sending: &&Sending| (0..sending.messages.len()).map(|_| ids.next().flatten()).collect();
        Ok(all.iter().map(of_one).collect())
    }

    /// Takes out messages for each wish. All scopes differ, and all or none are by sender; those with a sender and no queue are not
    /// together with others.
    pub(crate) async fn pop(&self, client: &Client, wishes: &[(&Scope, usize)]) -> Result<Vec<Found>, Error> {
        let mut numbers: HashMap<(&str, &str), i32> = HashMap::new();
        let mut parts: Vec<i32> = Vec::with_capacity(wishes.len());
        for (scope, _) in wishes {
            let next = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
            parts.push(*numbers.entry((&scope.queue, &scope.sender)).or_insert(next));
        }
        let columns = Columns::of(wishes);
        let statement = &self.pop[usize::from(columns.is_by_sender)];
        let [queues, receivers, senders, wanted] = columns.parameters();
        let rows = client.query(statement, &[&parts, queues, receivers, senders, wanted]).await?;
        Ok(found(&rows, wishes.len()))
    }

    /// Reads messages for each wish, and leaves them. All or none of the scopes are by sender.
    pub(crate) async fn peek(&self, client: &Client, wishes: &[(&Scope, usize)]) -> Result<Vec<Found>, Error> {
        let columns = Columns::of(wishes);
        let statement = &self.peek[usize::from(columns.is_by_sender)];
        let rows = client.query(statement, &columns.parameters()).await?;
        Ok(found(&rows, wishes.len()))
    }

    /// For each receiver the queues in which messages wait for it.
    pub(crate) async fn waiting(&self, client: &Client, receivers: &[&str]) -> Result<Vec<Vec<String>>, Error> {
        let rows = client.query(&self.waiting, &[&receivers]).await?;
        Ok(rows.iter().map(|row| row.get(1)).collect())
    }

    /// Whether the queue is new.
    pub(crate) async fn create_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.create, &[&name]).await?.is_some())
    }

    /// Whether the queue was there.
    pub(crate) async fn delete_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.delete, &[&name]).await?.is_some())
    }

    /// Whether the queue is there.
    pub(crate) async fn show_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.show, &[&name]).await?.is_some())
    }

    /// The names of all queues.
    pub(crate) async fn list_queues(&self, client: &Client) -> Result<Vec<String>, Error> {
        Ok(client.query(&self.list, &[]).await?.iter().map(|row| row.get(0)).collect())
    }
}

/// Wishes as arrays, one for each parameter.
struct Columns<'w> {
    is_by_sender: bool,
    queues: Vec<&'w str>,
    receivers: Vec<&'w str>,
    senders: Vec<&'w str>,
    wanted: Vec<i32>,
}

impl<'w> Columns<'w> {
    fn of(wishes: &[(&'w Scope, usize)]) -> Columns<'w> {
        let is_by_sender = wishes.iter().any(|(scope, _)| !scope.sender.is_empty());
        assert!(wishes.iter().all(|(scope, _)| scope.sender.is_empty() != is_by_sender), "one index for all");
        Columns {
            is_by_sender,
            queues: wishes.iter().map(|(scope, _)| scope.queue.as_str()).collect(),
            receivers: wishes.iter().map(|(scope, _)| scope.receiver.as_str()).collect(),
            senders: wishes.iter().map(|(scope, _)| scope.sender.as_str()).collect(),
            wanted: wishes.iter().map(|(_, wanted)| i32::try_from(*wanted).unwrap_or(i32::MAX)).collect(),
        }
    }

    fn parameters(&self) -> [&(dyn ToSql + Sync); 4] {
        [&self.queues, &self.receivers, &self.senders, &self.wanted]
    }
}

/// Sorts rows by the wish they belong to. A wish without a message has one row without one.
fn found(rows: &[Row], wishes: usize) -> Vec<Found> {
    let mut all: Vec<Found> = (0..wishes).map(|_| Found::default()).collect();
    for row in rows {
        let place = usize::try_from(row.get::<_, i64>(0)).unwrap_or(0);
        let found = &mut all[place - 1];
        found.is_unknown = row.get(1);
        found.is_contended = row.get(2);
        if let Some(id) = row.get::<_, Option<i64>>(3) {
            found.messages.push(Message {
                id,
                queue: row.get(4),
                sender: row.get(5),
                receiver: row.get(6),
                sent_unix_us: row.get(7),
                body: row.get(8),
            });
        }
    }
    all
}
