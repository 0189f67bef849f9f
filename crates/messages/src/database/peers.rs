//! Services at one database tell each other what polls need to know: whoever has polls that wait says for which queues, and whoever puts a
//! message into one of these says so. It is said over a connection beside the path of requests, many queues at once, and only while
//! somebody elsewhere waits. What is said may be lost: polls also look by themselves.

use crate::database::connection::Database;
use crate::database::error::chain;
use crate::observe::journal::Journal;
use crate::path::long_polls::Waiting;
use clock::{Clock, Nanos};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use tokio_postgres::Error;

const LISTEN: &str = "LISTEN waystage_messages";
/// What is said need not be on disk; the setting is for this transaction only.
const SAY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('waystage_messages', $1)";
/// How often it is said again that polls wait.
const SAY_EVERY: Duration = Duration::from_secs(2);
/// Twice may be missed.
const BELIEVED_FOR: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// PostgreSQL takes less than 8000.
const SAID_BYTES_MAX: usize = 7500;
/// Queues of others that are remembered.
const WANTED_MAX: usize = 10_000;

/// What this service knows of the others, and has to say to them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    /// What this service is called among them.
    name: String,
    waiting: Arc<Waiting>,
    clock: Clock,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Queues for which others have polls, and until when that is believed.
    wanted: HashMap<String, Nanos>,
    /// When it was said that polls wait for these queues.
    told: HashMap<String, Nanos>,
    /// To say: polls wait for these.
    asks: BTreeSet<String>,
    /// To say: there may be messages in these.
    has: BTreeSet<String>,
}

impl Neighbours {
    /// Nothing is known yet.
    pub(crate) fn new(waiting: Arc<Waiting>, clock: Clock) -> Arc<Neighbours> {
        // The time of its start and its number make a name that no other service has, on whatever host.
        let name = format!("{:x}-{:x}", clock::unix_now(), std::process::id());
        Arc::new(Neighbours { name, waiting, clock, state: Mutex::default(), news: Notify::new() })
    }

    /// Something was put into this queue: wakes who waits here, and tells others who wait.
    pub(crate) fn changed(&self, queue: &str) {
        self.waiting.wake(queue);
        let mut state = self.lock();
        if state.wanted.get(queue).is_some_and(|until| *until > self.clock.now()) && state.has.insert(queue.into()) {
            self.news.notify_one();
        }
    }

    /// A poll found nothing in this queue, and waits.
    pub(crate) fn wants(&self, queue: &str) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.told.get(queue).is_none_or(|told| now >= *told + SAY_EVERY) {
            state.told.insert(queue.into(), now);
            state.asks.insert(queue.into());
            self.news.notify_one();
        }
    }

    /// Talks to the others until it is dropped. A database that is down is tried again later.
    pub(crate) async fn run(self: Arc<Neighbours>, database: Database, journal: Arc<Journal>) {
        loop {
            if let Err(error) = self.converse(&database).await {
                journal.note_connect_failure(&chain(&error));
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Until the connection ends.
    async fn converse(&self, database: &Database) -> Result<(), Error> {
        let (client, mut heard) = database.connect_listening().await?;
        client.batch_execute(LISTEN).await?;
        let say = client.prepare(SAY).await?;
        // Its first time is now.
        let mut again = tokio::time::interval(SAY_EVERY);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                payload = heard.recv() => match payload {
                    Some(payload) => self.hear(&payload),
                    None => return Ok(()),
                },
                () = self.news.notified() => {}
                _ = again.tick() => self.repeat(),
            }
            for text in self.sayings() {
                client.execute(&say, &[&text]).await?;
            }
        }
    }

    /// What another service said. Whoever else may write into the database could say anything, which wakes somebody at most.
    fn hear(&self, payload: &str) {
        let mut words = payload.split(' ');
        if words.next() == Some(self.name.as_str()) {
            return;
        }
        match words.next() {
            Some("has") => words.for_each(|queue| self.waiting.wake(queue)),
            Some("asks") => {
                let now = self.clock.now();
                let mut state = self.lock();
                state.wanted.retain(|_, until| *until > now);
                for queue in words.take(WANTED_MAX.saturating_sub(state.wanted.len())) {
                    state.wanted.insert(queue.into(), now + BELIEVED_FOR);
                }
            }
            _ => {}
        }
    }

    /// Says again for which queues polls wait, and forgets what was said of the others.
    fn repeat(&self) {
        let now = self.clock.now();
        let queues = self.waiting.queues();
        let mut state = self.lock();
        state.told.retain(|_, told| now < *told + SAY_EVERY);
        for queue in queues {
            state.told.insert(queue.clone(), now);
            state.asks.insert(queue);
        }
    }

    /// Everything that is to be said, in as few pieces as there may be.
    fn sayings(&self) -> Vec<String> {
        let (asks, has) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.asks), std::mem::take(&mut state.has))
        };
        [("asks", asks), ("has", has)].iter().flat_map(|(what, queues)| self.pieces(what, queues)).collect()
    }

    fn pieces(&self, what: &str, queues: &BTreeSet<String>) -> Vec<String> {
        let head = format!("{} {what}", self.name);
        let mut pieces: Vec<String> = Vec::new();
        for queue in queues {
            match pieces.last_mut() {
                Some(piece) if piece.len() + 1 + queue.len() <= SAID_BYTES_MAX => *piece += &format!(" {queue}"),
                _ => pieces.push(format!("{head} {queue}")),
            }
        }
        pieces
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services() -> [Arc<Neighbours>; 2] {
        ["a", "b"].map(|name| {
            let all = Neighbours::new(Waiting::new(10), Clock::monotonic());
            Arc::new(Neighbours { name: name.into(), ..Arc::into_inner(all).unwrap() })
        })
    }

    /// Lets each hear what either has to say; how many pieces it was.
    fn talk(services: &[Arc<Neighbours>]) -> usize {
        let said: Vec<String> = services.iter().flat_map(|service| service.sayings()).collect();
        said.iter().for_each(|text| services.iter().for_each(|service| service.hear(text)));
        said.len()
    }

    #[test]
    fn nothing_is_said_of_queues_that_nobody_polls_elsewhere() {
        let services = services();
        services[0].changed("q");
        assert_eq!(talk(&services), 0);
        services[1].wants("q");
        services[1].wants("q");
        assert_eq!(talk(&services), 1, "once for a while");
        services[0].changed("p");
        services[1].changed("q");
        assert_eq!(talk(&services), 0, "nobody polls the one, and only here somebody polls the other");
        services[0].changed("q");
        services[0].changed("q");
        assert_eq!(services[0].sayings(), ["a has q"]);
    }

    #[tokio::test]
    async fn polls_are_woken_by_what_another_service_says() {
        let services = services();
        let place = services[1].waiting.enter("q").unwrap();
        services[1].wants("q");
        talk(&services);
        let notify = place.notify.clone();
        let mut woken = std::pin::pin!(notify.notified());
        woken.as_mut().enable();
        services[0].changed("q");
        talk(&services);
        woken.await;
        services[1].repeat();
        assert_eq!(services[1].sayings(), ["b asks q"], "as long as it waits");
        drop(place);
        services[1].repeat();
        assert!(services[1].sayings().is_empty());
    }

    #[test]
    fn many_queues_are_told_in_pieces_and_nonsense_is_ignored() {
        let services = services();
        let names: Vec<String> = (0..1000).map(|number| format!("queue-{number:020}")).collect();
        names.iter().for_each(|name| services[1].wants(name));
        let said = services[1].sayings();
        assert!(said.len() > 1 && said.iter().all(|text| text.len() < 8000));
        said.iter().for_each(|text| services[0].hear(text));
        assert_eq!(services[0].lock().wanted.len(), 1000);
        for nonsense in ["", " ", "x", "x asks", "x says q", "b  asks q", "é has q"] {
            services[0].hear(nonsense);
        }
    }
}
