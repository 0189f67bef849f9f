//! Prepares every statement once for each connection.

use crate::database::low_water::KNOWN_FROM;
use tokio_postgres::{Client, Error, Statement};

/// Ends of the statements' scopes: by sender there is no low-water.
const FROM: [(&str, &str); 2] =
    [("{own}", " AND m.id >= wish.own_from"), ("{shared}", " AND m.id >= wish.shared_from")];
const IN_A_QUEUE: &str = "m.queue_id = wish.queue_id AND (m.expires_at IS NULL OR m.expires_at > now())";
const BY_SENDER: &str = "m.sender = wish.sender AND (m.expires_at IS NULL OR m.expires_at > now()) AND (m.queue_id = wish.queue_id OR (wish.queue_name = '' AND EXISTS (\
    SELECT FROM queue WHERE queue.id = m.queue_id AND deleted_at IS NULL)))";

/// The time of a lease when neither the request nor the queue says one.
const DEFAULT_MS: &str = "30000";

const LEASE_COLUMNS: &str = ", leased.queue_id, replace(leased.lease::text, '-', '') AS secret, leased.attempts";

const ACKNOWLEDGE: &str = "DELETE FROM held USING asked";
const EXTEND: &str = "UPDATE held SET due_at = now() + interval '1 millisecond' * coalesce(nullif(asked.time_ms, 0), \
    (SELECT lease_ms FROM queue WHERE queue.id = held.queue_id), {default_ms}) FROM asked";
const RETURN: &str =
    "UPDATE held SET lease = NULL, due_at = now() + asked.time_ms * interval '1 millisecond' FROM asked";

/// The statement that takes messages, made to lease them.
fn receive(take: &str) -> String {
    let then = include_str!("lease.sql").replace("{default_ms}", DEFAULT_MS);
    take.replace("{then}", &then).replace("{rows}", "leased").replace("{lease}", LEASE_COLUMNS)
}

/// One statement for each [`Settlement`], in its order.
fn settle() -> [String; 3] {
    let text = include_str!("settle.sql");
    [ACKNOWLEDGE, EXTEND, RETURN].map(|change| {
        let commented = text.replacen("{change}", change.split(' ').next().unwrap_or_default(), 1);
        commented.replace("{change}", &change.replace("{default_ms}", DEFAULT_MS))
    })
}

/// All statements of one connection.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(super) send_one: Statement,
    pub(super) pop_one: Statement,
    pub(super) send: Statement,
    pub(super) send_with: Statement,
    pub(super) pop: [Statement; 2],
    pub(super) receive: [Statement; 2],
    pub(super) settle: [Statement; 3],
    pub(super) peek: [Statement; 2],
    pub(super) waiting: Statement,
    pub(super) create: Statement,
    pub(super) configure: Statement,
    pub(super) delete: Statement,
    pub(super) show: Statement,
    pub(super) list: Statement,
}

impl Statements {
    /// Prepares them, in one round trip or two.
    pub(crate) async fn prepare(client: &Client) -> Result<Statements, Error> {
        let take = &include_str!("pop.sql").replace("{known_from}", KNOWN_FROM);
        let pop = take.replace("{then}", "").replace("{rows}", "taken").replace("{lease}", "");
        let scoped = |text: &str| {
            let from = FROM.iter().fold(text.to_string(), |text, (name, low)| text.replace(name, low));
            let all = FROM.iter().fold(text.to_string(), |text, (name, _)| text.replace(name, ""));
            [from.replace("{scope}", IN_A_QUEUE), all.replace("{scope}", BY_SENDER)]
        };
        let (pop, receive) = (scoped(&pop), scoped(&receive(take)));
        let (peek, settle) = (scoped(include_str!("peek.sql")), settle());
        let (send, send_with, waiting, create, configure, delete, show, list) = tokio::try_join!(
            client.prepare(include_str!("send.sql")),
            client.prepare(include_str!("send_with.sql")),
            client.prepare(include_str!("waiting.sql")),
            client.prepare(
                "INSERT INTO queue (name) VALUES ($1) ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING RETURNING id"
            ),
            client.prepare(include_str!("configure.sql")),
            client.prepare("UPDATE queue SET deleted_at = now() WHERE name = $1 AND deleted_at IS NULL RETURNING id"),
            client.prepare(include_str!("show.sql")),
            client.prepare("SELECT name FROM queue WHERE deleted_at IS NULL ORDER BY name"),
        )?;
        let (pop, receive, peek, settle) = tokio::try_join!(
            prepare_all(client, &pop),
            prepare_all(client, &receive),
            prepare_all(client, &peek),
            prepare_all(client, &settle),
        )?;
        let (send_one, pop_one) = tokio::try_join!(
            client.prepare(include_str!("send_one.sql")),
            client.prepare(include_str!("pop_one.sql"))
        )?;
        Ok(Statements {
            send_one,
            pop_one,
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
}

/// Prepares variants of a statement.
async fn prepare_all<const N: usize>(client: &Client, texts: &[String; N]) -> Result<[Statement; N], Error> {
    let mut statements = Vec::with_capacity(N);
    for text in texts {
        statements.push(client.prepare(text).await?);
    }
    Ok(statements.try_into().unwrap_or_else(|_| unreachable!("as many as there are texts")))
}
