//! Exchanges notifications between the services at one database. A service with waiting polls announces their queues. A service that stores
//! a message in one of these queues notifies the others. Notifications are sent over a connection of their own, many queues at once, and
//! only while a peer has waiting polls. They can be lost, because each poll also tries again by itself.

use crate::database::connection::Database;
use crate::database::error::{DatabaseError, one_line};
use crate::observe::journal::Journal;
use crate::observe::limits::{Limit, LimitCounts};
use crate::path::health::{BackgroundLoop, Health};
use crate::path::long_polls::LongPolls;
use clock::{Clock, Nanos};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// The channel of the schema with the tables. Services in other schemas of the database have other queues.
const CHANNEL: &str = "SELECT 'waystage_messages_' || relnamespace FROM pg_class WHERE oid = to_regclass('queue')";
/// Notifications need not be on disk; the setting applies to this transaction only.
const NOTIFY: &str = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)";
/// How often a service announces its waiting polls.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);
/// Two announcements can be lost.
const VALID_FOR: Duration = Duration::from_secs(5);
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// PostgreSQL's limit is 8000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7500;
/// Queues of peers that are remembered; with more `long-polls`, as many as those.
const QUEUES_MAX: usize = 10_000;

/// What this service knows of its peers, and the notifications to send.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The name of this service among its peers.
    name: String,
    long_polls: Arc<LongPolls>,
    clock: Clock,
    limits: Arc<LimitCounts>,
    state: Mutex<State>,
    has_outgoing: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Queues in which peers have waiting polls, and until when the announcement is valid.
    polled_elsewhere: HashMap<String, Nanos>,
    /// When this service last announced that it has waiting polls in these queues.
    announced: HashMap<String, Nanos>,
    /// To send: this service has waiting polls in these queues.
    polled: BTreeSet<String>,
    /// To send: these queues have changed.
    changed_queues: BTreeSet<String>,
    /// To send: these queues were deleted.
    deleted_queues: BTreeSet<String>,
}

impl Peers {
    pub(crate) fn new(long_polls: Arc<LongPolls>, clock: Clock, limits: Arc<LimitCounts>) -> Arc<Peers> {
        // Start time and process id make a name that no other service has, on any host.
        let name = format!("{:x}-{:x}", clock::unix_now(), std::process::id());
        Arc::new(Peers { name, long_polls, clock, limits, state: Mutex::default(), has_outgoing: Notify::new() })
    }

    /// A queue has changed. Wakes the polls of this service, and notifies peers that have polls there.
    pub(crate) fn notify(&self, queue: &str) {
        self.long_polls.wake(queue);
        self.notify_peers(queue, |state| &mut state.changed_queues);
    }

    /// A queue was deleted. Ends the polls of this service, and notifies peers that have polls there.
    pub(crate) fn notify_deleted(&self, queue: &str) {
        self.long_polls.end(queue);
        self.notify_peers(queue, |state| &mut state.deleted_queues);
    }

    fn notify_peers(&self, queue: &str, queues: impl Fn(&mut State) -> &mut BTreeSet<String>) {
        let mut state = self.lock();
        let is_polled = state.polled_elsewhere.get(queue).is_some_and(|until| *until > self.clock.now());
        if is_polled && queues(&mut state).insert(queue.into()) {
            self.has_outgoing.notify_one();
        }
    }

    /// A poll found no message in this queue and waits.
    pub(crate) fn announce_poll(&self, queue: &str) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.announced.get(queue).is_none_or(|announced| now >= *announced + ANNOUNCE_EVERY) {
            state.announced.insert(queue.into(), now);
            state.polled.insert(queue.into());
            self.has_outgoing.notify_one();
        }
    }

    /// Exchanges notifications until it is dropped. If the database is unreachable, it tries again later.
    pub(crate) async fn run(self: Arc<Peers>, database: Database, journal: Arc<Journal>, health: Arc<Health>) {
        loop {
            if let Err(error) = self.exchange(&database, &health).await {
                journal.note_loop_failure(&error);
                health.note_failure(BackgroundLoop::Peers, one_line(&error));
            }
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }

    /// Runs until the connection ends.
    async fn exchange(&self, database: &Database, health: &Health) -> Result<(), DatabaseError> {
        let (client, mut notifications) = database.connect_listening().await?;
        let rows = client.query(CHANNEL, &[]).await?;
        // The tables may not exist yet.
        let Some(channel) = rows.first().map(|row| row.get::<_, String>(0)) else { return Ok(()) };
        let listen = format!("LISTEN {channel}");
        client.batch_execute(&listen).await?;
        let notify = client.prepare(NOTIFY).await?;
        // The first tick is immediate.
        let mut again = tokio::time::interval(ANNOUNCE_EVERY);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                payload = notifications.recv() => match payload {
                    Some(payload) => self.receive(&payload),
                    None => return Ok(()),
                },
                () = self.has_outgoing.notified() => {}
                _ = again.tick() => {
                    if client.is_closed() {
                        return Ok(());
                    }
                    self.announce_polls();
                    // Its reply shows that the connection is not silent.
                    client.batch_execute(&listen).await?;
                    health.note_round(BackgroundLoop::Peers);
                }
            }
            for text in self.outgoing() {
                client.execute(&notify, &[&channel, &text]).await?;
            }
        }
    }

    /// Handles a notification. Other programs at the database can send any payload; at worst it wakes or ends polls for nothing.
    fn receive(&self, payload: &str) {
        let mut fields = payload.split(' ');
        if fields.next() == Some(self.name.as_str()) {
            return;
        }
        match fields.next() {
            Some("changed") => fields.for_each(|queue| self.long_polls.wake(queue)),
            Some("deleted") => fields.for_each(|queue| self.long_polls.end(queue)),
            Some("polled") => {
                let now = self.clock.now();
                let mut state = self.lock();
                state.polled_elsewhere.retain(|_, until| *until > now);
                let most = QUEUES_MAX.max(self.long_polls.limit());
                for queue in fields {
                    // A known queue needs no room, so that it stays known.
                    if state.polled_elsewhere.len() < most || state.polled_elsewhere.contains_key(queue) {
                        state.polled_elsewhere.insert(queue.into(), now + VALID_FOR);
                    } else {
                        self.limits.reach(Limit::PeerQueues);
                    }
                }
            }
            _ => {}
        }
    }

    /// Announces all queues with waiting polls, and forgets older announcements.
    fn announce_polls(&self) {
        let now = self.clock.now();
        let queues = self.long_polls.queues();
        let mut state = self.lock();
        state.announced.retain(|_, announced| now < *announced + ANNOUNCE_EVERY);
        for queue in queues {
            state.announced.insert(queue.clone(), now);
            state.polled.insert(queue);
        }
    }

    /// All notifications to send, in as few payloads as possible.
    fn outgoing(&self) -> Vec<String> {
        let [polled, deleted, changed] = {
            let state = &mut *self.lock();
            [&mut state.polled, &mut state.deleted_queues, &mut state.changed_queues].map(std::mem::take)
        };
        // A deletion first: a change may be of the new queue.
        [("polled", polled), ("deleted", deleted), ("changed", changed)]
            .iter()
            .flat_map(|(what, queues)| self.payloads(what, queues))
            .collect()
    }

    fn payloads(&self, what: &str, queues: &BTreeSet<String>) -> Vec<String> {
        let head = format!("{} {what}", self.name);
        let mut payloads: Vec<String> = Vec::new();
        for queue in queues {
            match payloads.last_mut() {
                Some(payload) if payload.len() + 1 + queue.len() <= PAYLOAD_BYTES_MAX => {
                    *payload += &format!(" {queue}")
                }
                _ => payloads.push(format!("{head} {queue}")),
            }
        }
        payloads
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn services() -> [Arc<Peers>; 2] {
        services_with(&Clock::monotonic())
    }

    fn services_with(clock: &Clock) -> [Arc<Peers>; 2] {
        ["a", "b"].map(|name| {
            let all = Peers::new(LongPolls::new(10), clock.clone(), Arc::default());
            Arc::new(Peers { name: name.into(), ..Arc::into_inner(all).unwrap() })
        })
    }

    /// Delivers all notifications to all services. Returns how many payloads there were.
    fn deliver(services: &[Arc<Peers>]) -> usize {
        let sent: Vec<String> = services.iter().flat_map(|service| service.outgoing()).collect();
        sent.iter().for_each(|text| services.iter().for_each(|service| service.receive(text)));
        sent.len()
    }

    #[test]
    fn queues_without_polls_elsewhere_cause_no_notification() {
        let services = services();
        services[0].notify("q");
        assert_eq!(deliver(&services), 0);
        services[1].announce_poll("q");
        services[1].announce_poll("q");
        assert_eq!(deliver(&services), 1, "announced once per interval");
        services[0].notify("p");
        services[1].notify("q");
        assert_eq!(deliver(&services), 0, "no service polls the one, and only the sender itself polls the other");
        services[0].notify("q");
        services[0].notify("q");
        assert_eq!(services[0].outgoing(), ["a changed q"]);
    }

    #[tokio::test]
    async fn a_notification_from_a_peer_wakes_polls() {
        let services = services();
        let place = services[1].long_polls.enter("q").unwrap();
        services[1].announce_poll("q");
        deliver(&services);
        let waiters = place.waiters.clone();
        let mut woken = std::pin::pin!(waiters.notify.notified());
        woken.as_mut().enable();
        services[0].notify("q");
        deliver(&services);
        woken.await;
        services[0].notify_deleted("p");
        deliver(&services);
        assert!(!place.is_deleted());
        services[1].announce_polls();
        assert_eq!(services[1].outgoing(), ["b polled q"], "repeated as long as the poll waits");
        drop(place);
        services[1].announce_polls();
        assert!(services[1].outgoing().is_empty());
    }

    #[test]
    fn many_queues_are_split_over_notifications_and_malformed_ones_are_ignored() {
        let services = services();
        let names: Vec<String> = (0..1000).map(|number| format!("queue-{number:020}")).collect();
        names.iter().for_each(|name| services[1].announce_poll(name));
        let sent = services[1].outgoing();
        assert!(sent.len() > 1 && sent.iter().all(|text| text.len() < 8000));
        sent.iter().for_each(|text| services[0].receive(text));
        assert_eq!(services[0].lock().polled_elsewhere.len(), 1000);
        for nonsense in ["", " ", "x", "x polled", "x other q", "b  polled q", "é changed q"] {
            services[0].receive(nonsense);
        }
    }

    #[test]
    fn polls_stay_known_as_long_as_they_are_announced() {
        const QUEUES: usize = QUEUES_MAX * 19 / 20;
        let (clock, manual) = Clock::manual(Nanos(1));
        let services = services_with(&clock);
        let names: Vec<String> = (0..=QUEUES_MAX).map(|number| format!("q{number}")).collect();
        for _ in 0..2 {
            names[..QUEUES].iter().for_each(|name| services[1].announce_poll(name));
            deliver(&services);
            manual.advance(VALID_FOR - Duration::from_secs(1));
        }
        let counted = || services[0].limits.reached()[Limit::PeerQueues as usize];
        let notified = || services[0].outgoing().iter().map(|text| text.split(' ').count() - 2).sum::<usize>();
        names.iter().for_each(|name| services[0].notify(name));
        assert_eq!((notified(), counted()), (QUEUES, 0));
        names.iter().for_each(|name| services[1].announce_poll(name));
        deliver(&services);
        names.iter().for_each(|name| services[0].notify(name));
        assert_eq!((notified(), counted()), (QUEUES_MAX, 1), "the limit");
    }
}
