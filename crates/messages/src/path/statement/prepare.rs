//! The texts of all statements, and their preparation, once for each connection.

use crate::database::low_water::SCAN_FROM;
use crate::path::work::DEFAULT_ATTEMPTS;
use tokio_postgres::{Client, Error, Statement};

/// The conditions for low-water marks, which fetches by sender do not have.
const SCAN_FROM_CONDITIONS: [(&str, &str); 2] =
    [("{own}", " AND m.id >= request.own_from"), ("{shared}", " AND m.id >= request.shared_from")];
const IN_A_QUEUE: &str = "m.queue_id = request.queue_id AND (m.expires_at IS NULL OR m.expires_at > now())";
const BY_SENDER: &str = "m.sender = request.sender AND (m.expires_at IS NULL OR m.expires_at > now()) AND (m.queue_id = request.queue_id OR (request.queue_name = '' AND EXISTS (\
    SELECT FROM queue WHERE queue.id = m.queue_id AND deleted_at IS NULL)))";

/// The visibility timeout if neither the request nor the queue has one.
const DEFAULT_VISIBILITY_TIMEOUT_MS: &str = "30000";

const LEASE_COLUMNS: &str = ", leased.queue_id, replace(leased.lease_secret::text, '-', '') AS secret, leased.attempts";

/// Inserts a key if no other send has it, and waits for a concurrent transaction that inserts it. It is rolled back.
const CLAIM_KEY: &str = "INSERT INTO idempotency_key (queue_id, sender, key, content_hash, ids) \
    SELECT id, $2, $3, '', '{}' FROM queue WHERE name = $1 AND deleted_at IS NULL ON CONFLICT DO NOTHING";

const EXTEND: &str = "UPDATE invisible_message AS m SET is_backing_off = false, due_at = now() + interval '1 millisecond' * coalesce(nullif(request.time_ms, 0), \
    (SELECT lease_ms FROM queue WHERE queue.id = m.queue_id), {default_ms}) FROM locked AS request";
/// The statement that takes messages out, extended to lease them.
fn receive(take: &str) -> String {
    let then = include_str!("lease.sql").replace("{default_ms}", DEFAULT_VISIBILITY_TIMEOUT_MS);
    take.replace("{then}", &then).replace("{rows}", "leased").replace("{lease}", LEASE_COLUMNS)
}

/// A statement that lists queues, with the condition for prefixes; `parameter` contains the prefixes.
fn with_prefixes(list: &str, parameter: &str) -> String {
    let condition = "({p}::text[] IS NULL OR EXISTS (SELECT FROM unnest({p}::text[]) AS t (prefix) WHERE starts_with(name, prefix)))";
    list.replace("{prefixes}", &condition.replace("{p}", parameter))
}

/// A statement that fetches, by queue and by sender.
fn scoped(text: &str) -> [String; 2] {
    let from = SCAN_FROM_CONDITIONS.iter().fold(text.to_string(), |text, (name, low)| text.replace(name, low));
    let all = SCAN_FROM_CONDITIONS.iter().fold(text.to_string(), |text, (name, _)| text.replace(name, ""));
    [from.replace("{scope}", IN_A_QUEUE), all.replace("{scope}", BY_SENDER)]
}

/// The pop statements and the receive statements.
fn takes() -> ([String; 2], [String; 2]) {
    let take = &include_str!("pop.sql").replace("{scan_from}", SCAN_FROM);
    let pop = take.replace("{then}", "").replace("{rows}", "taken").replace("{lease}", "");
    (scoped(&pop), scoped(&receive(take)))
}

fn acknowledge() -> String {
    let delete = |table: &str| include_str!("delete_leased.sql").trim_end().replace("{table}", table);
    let text = include_str!("acknowledge.sql").replace("{delete_visible}", &delete("message"));
    text.replace("{delete_invisible}", &delete("invisible_message"))
}

/// One statement for each [`LeaseAction`], in its order.
fn lease_actions() -> [String; 3] {
    let extend = EXTEND.replace("{default_ms}", DEFAULT_VISIBILITY_TIMEOUT_MS);
    let extend = include_str!("extend.sql").replace("{extend}", &extend);
    [acknowledge(), extend, include_str!("nack.sql").replace("{backoff_ms}", &backoff_ms("m"))]
}

/// The pause before a message is redelivered, in milliseconds, as an expression about a message and its row `queue`: it doubles with each
/// attempt, up to an hour. Null: none. A queue without a dead-letter queue has a pause from the 20th attempt on.
pub(crate) fn backoff_ms(message: &str) -> String {
    format!(
        "CASE WHEN queue.backoff_ms IS NOT NULL THEN least(queue.backoff_ms * 2 ^ least({message}.attempts - 1, 30), 3600000) \
         WHEN queue.attempts IS NULL AND {message}.attempts >= {DEFAULT_ATTEMPTS} \
         THEN least(1000 * 2 ^ least({message}.attempts - {DEFAULT_ATTEMPTS}, 30), 3600000) END"
    )
}

/// Creates a queue, if it does not exist. An insert draws a number even if the queue exists, so it is looked up first.
const CREATE: &str =
    "INSERT INTO queue (name) SELECT $1 WHERE NOT EXISTS (SELECT FROM queue WHERE name = $1 AND deleted_at IS NULL)
    ON CONFLICT (name) WHERE deleted_at IS NULL DO NOTHING RETURNING id";

/// All statements of one connection.
#[derive(Debug)]
pub(crate) struct Statements {
    pub(super) send_one: Statement,
    pub(super) pop_one: Statement,
    pub(super) send: Statement,
    pub(super) send_with: Statement,
    pub(super) claim_key: Statement,
    pub(super) pop: [Statement; 2],
    pub(super) receive: [Statement; 2],
    pub(super) lease_actions: [Statement; 3],
    pub(super) lost_leases: Statement,
    pub(super) peek: [Statement; 2],
    pub(super) waiting_queues: Statement,
    pub(super) create: Statement,
    pub(super) configure: Statement,
    pub(super) delete: Statement,
    pub(super) show: Statement,
    pub(super) list: Statement,
}

impl Statements {
    /// Prepares all statements, many of them in one round trip.
    pub(crate) async fn prepare(client: &Client) -> Result<Statements, Error> {
        let (pop, receive) = takes();
        let (peek, lease_actions) = (scoped(include_str!("peek.sql")), lease_actions());
        let lists = [(include_str!("waiting_queues.sql"), "$4"), (include_str!("list_queues.sql"), "$3")];
        let [waiting_queues, list] = lists.map(|(text, parameter)| with_prefixes(text, parameter));
        let (send, send_with, waiting_queues, create, configure, delete, show, list) = tokio::try_join!(
            client.prepare(include_str!("send.sql")),
            client.prepare(include_str!("send_with.sql")),
            client.prepare(&waiting_queues),
            client.prepare(CREATE),
            client.prepare(include_str!("configure.sql")),
            client.prepare("UPDATE queue SET deleted_at = now() WHERE name = $1 AND deleted_at IS NULL RETURNING id"),
            client.prepare(include_str!("show.sql")),
            client.prepare(&list),
        )?;
        let (pop, receive, peek, lease_actions) = tokio::try_join!(
            prepare_all(client, &pop),
            prepare_all(client, &receive),
            prepare_all(client, &peek),
            prepare_all(client, &lease_actions),
        )?;
        let (send_one, pop_one, claim_key, lost_leases) = tokio::try_join!(
            client.prepare(include_str!("send_one.sql")),
            client.prepare(include_str!("pop_one.sql")),
            client.prepare(CLAIM_KEY),
            client.prepare(include_str!("lost_leases.sql"))
        )?;
        Ok(Statements {
            send_one,
            pop_one,
            send,
            send_with,
            claim_key,
            pop,
            receive,
            lease_actions,
            lost_leases,
            peek,
            waiting_queues,
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
