//! Station 5. Every statement, prepared once for each connection: many requests become arrays, and rows become what they say.
//! Each statement is a transaction. Its result is read to the server's last word, which it says after the commit.

mod leases;
mod sending;
mod settings;
mod single;

pub(crate) use sending::Sent;

use crate::lease::{Lease, Leased};
use crate::low_water::Begin;
use crate::work::{Message, Scope, Sending};
use single::Single;
use std::collections::HashMap;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

/// Ends of the statements' scopes: by sender there is no low-water.
const FROM: [(&str, &str); 2] =
    [("{own}", " AND m.id >= wish.own_from"), ("{shared}", " AND m.id >= wish.shared_from")];
const IN_A_QUEUE: &str = "m.queue_id = wish.queue_id AND (m.expires_at IS NULL OR m.expires_at > now())";
const BY_SENDER: &str = "m.sender = wish.sender AND (m.expires_at IS NULL OR m.expires_at > now()) AND (m.queue_id = wish.queue_id OR (wish.queue_name = '' AND EXISTS (\
    SELECT FROM queue WHERE queue.id = m.queue_id AND deleted_at IS NULL)))";

/// No message is below this and below the low-water of `low_queue_id` and `low_era`: what came back in that era, or in the one after it, may
/// be; of another time nothing is known. Steps 4 to 6 of "Dead rows" in docs/messages.md.
pub(crate) const KNOWN_FROM: &str = "CASE WHEN queue.id <> low_queue_id THEN 0 WHEN queue.era = low_era THEN queue.returned_from \
    WHEN queue.era = low_era + 1 THEN least(queue.returned_from, queue.returned_before) ELSE 0 END";

/// All statements of one connection.
#[derive(Debug)]
pub(crate) struct Statements {
    single: Single,
    send: Statement,
    send_with: Statement,
    pop: [Statement; 2],
    receive: [Statement; 2],
    settle: [Statement; 3],
    peek: [Statement; 2],
    waiting: Statement,
    create: Statement,
    configure: Statement,
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
        let take = &include_str!("statement/pop.sql").replace("{known_from}", KNOWN_FROM);
        let pop = take.replace("{then}", "").replace("{rows}", "taken").replace("{lease}", "");
        let scoped = |text: &str| {
            let from = FROM.iter().fold(text.to_string(), |text, (name, low)| text.replace(name, low));
            let all = FROM.iter().fold(text.to_string(), |text, (name, _)| text.replace(name, ""));
            [from.replace("{scope}", IN_A_QUEUE), all.replace("{scope}", BY_SENDER)]
        };
        let (pop, receive) = (scoped(&pop), scoped(&leases::receive(take)));
        let (peek, settle) = (scoped(include_str!("statement/peek.sql")), leases::settle());
        let (send, send_with, waiting, create, configure, delete, show, list) = tokio::try_join!(
            client.prepare(include_str!("statement/send.sql")),
            client.prepare(include_str!("statement/send_with.sql")),
            client.prepare(include_str!("statement/waiting.sql")),
            client.prepare(
                "INSERT INTO queue (name) VALUES ($1) ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING RETURNING id"
            ),
            client.prepare(include_str!("statement/configure.sql")),
            client.prepare("UPDATE queue SET deleted_at = now() WHERE name = $1 AND deleted_at IS NULL RETURNING id"),
            client.prepare(include_str!("statement/show.sql")),
            client.prepare("SELECT name FROM queue WHERE deleted_at IS NULL ORDER BY name"),
        )?;
        let (pop, receive, peek, settle) = tokio::try_join!(
            prepare_all(client, &pop),
            prepare_all(client, &receive),
            prepare_all(client, &peek),
            prepare_all(client, &settle),
        )?;
        let single = Single::prepare(client).await?;
        Ok(Statements {
            single,
            send,
            send_with,
            pop,
            receive,
            settle,
            peek,
            waiting,
            create,
            configure,
            delete,
            show,
            list,
        })
    }

    /// Stores the messages of all; the ids of each, or none where the queue is not there.
    pub(crate) async fn send(&self, client: &Client, all: &[&Sending]) -> Result<Vec<Option<Vec<i64>>>, Error> {
        if let Some(stored) = self.send_one(client, all).await {
            return stored;
        }
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

    /// Takes out messages for each wish, looking from where it begins, and puts them under a lease if there are times for it: one for each message that is wanted, in
    /// milliseconds, or 0 for the queue's own. All scopes differ, and all or none are by sender; those with a sender and no queue are
    /// not together with others.
    pub(crate) async fn take(
        &self,
        client: &Client,
        wishes: &[(&Scope, usize)],
        begins: &[Begin],
        leases_ms: Option<&[i64]>,
    ) -> Result<Vec<Found>, Error> {
        if leases_ms.is_none()
            && let Some(found) = self.pop_one(client, wishes, begins).await
        {
            return found;
        }
        let mut numbers: HashMap<(&str, &str), i32> = HashMap::new();
        let mut parts: Vec<i32> = Vec::with_capacity(wishes.len());
        for (scope, _) in wishes {
            let next = i32::try_from(numbers.len()).unwrap_or(i32::MAX);
            parts.push(*numbers.entry((&scope.queue, &scope.sender)).or_insert(next));
        }
        let columns = Columns::of(wishes);
        let index = usize::from(columns.is_by_sender);
        let [queues, receivers, senders, wanted] = columns.parameters();
        let ids: Vec<i32> = begins.iter().map(|begin| begin.queue_id).collect();
        let eras: Vec<i32> = begins.iter().map(|begin| begin.era).collect();
        let own: Vec<i64> = begins.iter().map(|begin| begin.own).collect();
        let shared: Vec<i64> = begins.iter().map(|begin| begin.shared).collect();
        let mut parameters: Vec<&(dyn ToSql + Sync)> =
            vec![&parts, queues, receivers, senders, wanted, &ids, &eras, &own, &shared];
        let rows = match &leases_ms {
            None => client.query(&self.pop[index], &parameters).await?,
            Some(times_ms) => {
                parameters.push(times_ms);
                client.query(&self.receive[index], &parameters).await?
            }
        };
        Ok(found(&rows, wishes.len(), leases_ms.is_some()))
    }

    /// Reads messages for each wish, and leaves them. All or none of the scopes are by sender.
    pub(crate) async fn peek(&self, client: &Client, wishes: &[(&Scope, usize)]) -> Result<Vec<Found>, Error> {
        let columns = Columns::of(wishes);
        let statement = &self.peek[usize::from(columns.is_by_sender)];
        let rows = client.query(statement, &columns.parameters()).await?;
        Ok(found(&rows, wishes.len(), false))
    }

    /// For each receiver the queues in which messages wait for it.
    pub(crate) async fn waiting(&self, client: &Client, receivers: &[&str]) -> Result<Vec<Vec<String>>, Error> {
        let rows = client.query(&self.waiting, &[&receivers]).await?;
        Ok(rows.iter().map(|row| row.get(1)).collect())
    }

    /// Whether the queue was there.
    pub(crate) async fn delete_queue(&self, client: &Client, name: &str) -> Result<bool, Error> {
        Ok(client.query_opt(&self.delete, &[&name]).await?.is_some())
    }

    /// The names of all queues.
    pub(crate) async fn list_queues(&self, client: &Client) -> Result<Vec<String>, Error> {
        Ok(client.query(&self.list, &[]).await?.iter().map(|row| row.get(0)).collect())
    }
}

/// Prepares variants of a statement.
async fn prepare_all<const N: usize>(client: &Client, texts: &[String; N]) -> Result<[Statement; N], Error> {
    let mut statements = Vec::with_capacity(N);
    for text in texts {
        statements.push(client.prepare(text).await?);
    }
    Ok(statements.try_into().unwrap_or_else(|_| unreachable!("as many as there are texts")))
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
fn found(rows: &[Row], wishes: usize, is_leased: bool) -> Vec<Found> {
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
                leased: is_leased
                    .then(|| Leased { lease: Lease::new(row.get(9), id, row.get(10)), attempt: row.get(11) }),
            });
        }
    }
    all
}
