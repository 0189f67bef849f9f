//! What each client of one event loop has in the proxy, by the slot of its session: its jobs, and the bytes held for it.
//! Bounds the bytes of each client and, together with the other loops, those of the whole proxy.
//! Sessions, jobs and backend connections look here, so it knows none of them.

use crate::path::job::SessionRef;
use std::net::IpAddr;

/// So many bytes may be held for each client, whatever the others hold, so that small requests always work.
pub(crate) const ALWAYS_BYTES: usize = 16 * 1024;

/// The most keys in flight for all clients with unknown value sizes. Beyond this number, each such client must wait for
/// its first value. If the values are large, this is also the most large values that are read on the shared connections.
const FIRST_KEYS_MAX: usize = 64;

/// What one client has in the proxy.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// The number of the connection, since slots are reused. `SessionRef::NONE` after the client has disconnected.
    connection: u32,
    /// Its next request is blocked, perhaps until there are no late writes.
    is_blocked: bool,
    /// The sizes of the client's values are unknown, because it has received and stored none.
    is_unknown: bool,
    /// Jobs that were not released, whether their reply was sent or not.
    jobs: u32,
    /// Jobs whose reply was dropped, and must be read again.
    dropped: u32,
    /// Bytes of replies in these jobs.
    reply_bytes: usize,
    /// Answered writes that some replicas have not answered yet.
    late_writes: u32,
    /// Bytes of replies that the client has not read.
    output_bytes: usize,
    /// Bytes of buffers for requests that were not parsed yet, and of requests in flight.
    input_bytes: usize,
    /// Where it has connected from; none over a unix socket.
    address: Option<IpAddr>,
}

/// Why a value cannot be held, if it cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// The client has its share of bytes.
    ClientIsFull,
    /// The whole proxy has.
    ProxyIsFull,
    /// No client waits for the value.
    NoClient,
}

/// All clients of one loop.
#[derive(Debug)]
pub(crate) struct Clients {
    slots: Vec<Client>,
    /// The most bytes of replies held for one client.
    client_bytes_max: usize,
    /// The most bytes held by all loops.
    memory_bytes_max: usize,
    /// Bytes held by this loop, also in jobs whose client has disconnected, and by the other loops a moment ago.
    pub(crate) held_bytes: usize,
    pub(crate) held_by_others: usize,
    /// The number of clients with unknown value sizes, and of keys in flight for them.
    unknown: usize,
    first_keys: usize,
    /// Clients move to another loop, so that the end of a client's last job must be noticed.
    pub(crate) notes_idle: bool,
    /// If `notes_idle`: the clients whose last job has ended since the event loop looked.
    idle: Vec<SessionRef>,
    /// Blocked clients whose last late write has ended since the event loop looked.
    unblocked: Vec<SessionRef>,
}

impl Client {
    const LEFT: Client = Client::new(SessionRef::NONE.connection, None);

    const fn new(connection: u32, address: Option<IpAddr>) -> Client {
        Client {
            connection,
            address,
            is_unknown: true,
            jobs: 0,
            dropped: 0,
            late_writes: 0,
            is_blocked: false,
            reply_bytes: 0,
            output_bytes: 0,
            input_bytes: 0,
        }
    }
}

impl Clients {
    /// No clients. Limits in bytes.
    pub(crate) fn new(client_bytes_max: usize, memory_bytes_max: usize) -> Clients {
        Clients {
            slots: Vec::new(),
            client_bytes_max,
            memory_bytes_max,
            held_bytes: 0,
            held_by_others: 0,
            unknown: 0,
            first_keys: 0,
            notes_idle: false,
            idle: Vec::new(),
            unblocked: Vec::new(),
        }
    }

    /// Begins to count for a client that has connected. Jobs of a former client of this slot no longer count.
    pub(crate) fn open(&mut self, session: SessionRef, address: Option<IpAddr>) {
        let slot = session.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Client::LEFT);
        }
        self.slots[slot] = Client::new(session.connection, address);
        self.unknown += 1;
    }

    /// Records the address of a client, which a load balancer has reported.
    pub(crate) fn set_address(&mut self, session: SessionRef, address: Option<IpAddr>) {
        if let Some(client) = self.of(session) {
            client.address = address;
        }
    }

    /// The client has disconnected.
    pub(crate) fn close(&mut self, session: SessionRef) {
        self.buffers_changed(session, 0, 0);
        self.learned(session);
        if let Some(client) = self.of(session) {
            *client = Client::LEFT;
        }
    }

    /// Where a client has connected from, if it is still there.
    pub(crate) fn address(&self, session: SessionRef) -> Option<IpAddr> {
        self.get(session)?.address
    }

    fn of(&mut self, session: SessionRef) -> Option<&mut Client> {
        self.slots.get_mut(session.slot as usize).filter(|client| client.connection == session.connection)
    }

    fn get(&self, session: SessionRef) -> Option<&Client> {
        self.slots.get(session.slot as usize).filter(|client| client.connection == session.connection)
    }

    /// Counts a new job of a client.
    pub(crate) fn job_begun(&mut self, session: SessionRef) {
        if let Some(client) = self.of(session) {
            client.jobs += 1;
        }
    }

    /// Counts a job of a client that was released.
    pub(crate) fn job_released(&mut self, session: SessionRef) {
        let notes_idle = self.notes_idle;
        if let Some(client) = self.of(session) {
            client.jobs -= 1;
            if notes_idle && client.jobs == 0 {
                self.idle.push(session);
            }
        }
    }

    /// Takes a client out of `idle` or `unblocked`.
    pub(crate) fn take_idle_or_unblocked(&mut self) -> Option<SessionRef> {
        self.idle.pop().or_else(|| self.unblocked.pop())
    }

    /// Changes the number of keys in flight for clients with unknown value sizes.
    pub(crate) fn first_keys_changed(&mut self, before: u16, after: u16) {
        self.first_keys = self.first_keys - usize::from(before) + usize::from(after);
    }

    /// Records that the client has received or stored a value, so that the sizes of its values are known.
    pub(crate) fn learned(&mut self, session: SessionRef) {
        if let Some(client) = self.of(session)
            && std::mem::take(&mut client.is_unknown)
        {
            self.unknown -= 1;
        }
    }

    /// Whether the value sizes of a client are unknown.
    pub(crate) fn is_unknown(&self, session: SessionRef) -> bool {
        self.get(session).is_some_and(|client| client.is_unknown)
    }

    /// Whether there are too many clients with unknown value sizes for the shared connections, so that another connection
    /// must open.
    pub(crate) fn is_crowded(&self) -> bool {
        self.unknown > FIRST_KEYS_MAX
    }

    /// How many more keys such clients may request at once.
    pub(crate) fn first_keys_left(&self) -> usize {
        FIRST_KEYS_MAX.saturating_sub(self.first_keys)
    }

    /// Changes the number of bytes held in the jobs of a client.
    pub(crate) fn reply_bytes_changed(&mut self, session: SessionRef, before: usize, after: usize) {
        self.held_bytes = self.held_bytes - before + after;
        if let Some(client) = self.of(session) {
            client.reply_bytes = client.reply_bytes - before + after;
        }
    }

    /// Counts a write of a client that is answered, although some replicas have not answered yet.
    pub(crate) fn late_write_begun(&mut self, session: SessionRef) {
        if let Some(client) = self.of(session) {
            client.late_writes += 1;
        }
    }

    /// The last replica has answered a late write of a client.
    pub(crate) fn late_write_ended(&mut self, session: SessionRef) {
        if let Some(client) = self.of(session) {
            client.late_writes -= 1;
            if client.late_writes == 0 && client.is_blocked {
                self.unblocked.push(session);
            }
        }
    }

    /// Records whether the next request of a client is blocked. As long as it is, the client is listed in `unblocked` whenever its
    /// last late write has ended.
    pub(crate) fn set_blocked(&mut self, session: SessionRef, is_blocked: bool) {
        if let Some(client) = self.of(session) {
            client.is_blocked = is_blocked;
        }
    }

    /// Whether some replicas have not answered an answered write of a client.
    pub(crate) fn has_late_writes(&self, session: SessionRef) -> bool {
        self.get(session).is_some_and(|client| client.late_writes > 0)
    }

    /// Sets the number of bytes held in the buffers of a client's session.
    pub(crate) fn buffers_changed(&mut self, session: SessionRef, output_bytes: usize, input_bytes: usize) {
        if let Some(client) = self.of(session) {
            let before = client.output_bytes + client.input_bytes;
            (client.output_bytes, client.input_bytes) = (output_bytes, input_bytes);
            self.held_bytes = self.held_bytes - before + output_bytes + input_bytes;
        }
    }

    /// Counts a job whose reply was dropped, or, if not `is_dropped`, one that is read again or has failed.
    pub(crate) fn dropped_changed(&mut self, session: SessionRef, is_dropped: bool) {
        if let Some(client) = self.of(session) {
            client.dropped = if is_dropped { client.dropped + 1 } else { client.dropped - 1 };
        }
    }

    /// Whether a value of this size can be held for a client. If nothing is held for it yet, a value of any size can, unless
    /// the whole proxy is full.
    pub(crate) fn room_for(&self, session: SessionRef, bytes: usize) -> Room {
        let Some(client) = self.get(session) else { return Room::NoClient };
        let held = client.reply_bytes + client.output_bytes;
        if held + bytes <= ALWAYS_BYTES {
            Room::Enough
        } else if self.is_full(bytes) {
            Room::ProxyIsFull
        } else if held == 0 || held + bytes <= self.client_bytes_max {
            Room::Enough
        } else {
            Room::ClientIsFull
        }
    }

    /// Whether this number of further bytes would exceed the limit of all loops.
    pub(crate) fn is_full(&self, bytes: usize) -> bool {
        self.held_bytes + self.held_by_others + bytes > self.memory_bytes_max
    }

    /// The number of jobs of a client that were not released.
    pub(crate) fn jobs_of(&self, session: SessionRef) -> u32 {
        self.get(session).map_or(0, |client| client.jobs)
    }

    /// The bytes of replies in the jobs of a client, and the number of jobs whose reply was dropped.
    pub(crate) fn replies_of(&self, session: SessionRef) -> (usize, u32) {
        self.get(session).map_or((0, 0), |client| (client.reply_bytes, client.dropped))
    }
}

impl Default for Clients {
    /// Without limits.
    fn default() -> Clients {
        Clients::new(usize::MAX, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(connection: u32) -> SessionRef {
        SessionRef { slot: 3, connection }
    }

    #[test]
    fn a_blocked_client_is_listed_when_its_last_late_write_ends() {
        let mut clients = Clients::default();
        let session = SessionRef { slot: 0, connection: 7 };
        clients.open(session, None);
        (0..2).for_each(|_| clients.late_write_begun(session));
        clients.set_blocked(session, true);
        clients.late_write_ended(session);
        assert!(clients.has_late_writes(session) && clients.unblocked.is_empty());
        clients.late_write_ended(session);
        assert!(!clients.has_late_writes(session));
        assert_eq!(clients.unblocked, [session]);
        // It may still be blocked, by a write that becomes late after that.
        clients.late_write_begun(session);
        clients.late_write_ended(session);
        clients.set_blocked(session, false);
        clients.late_write_begun(session);
        clients.late_write_ended(session);
        assert_eq!(clients.unblocked, [session, session]);
    }

    #[test]
    fn a_new_client_of_a_slot_has_nothing_of_the_former_one() {
        let mut clients = Clients { notes_idle: true, ..Clients::default() };
        let [first, second] = [1, 2].map(session);
        clients.open(first, None);
        clients.job_begun(first);
        clients.reply_bytes_changed(first, 0, 10);
        clients.buffers_changed(first, 20, 30);
        assert_eq!((clients.jobs_of(first), clients.jobs_of(second), clients.held_bytes), (1, 0, 60));
        clients.close(first);
        assert_eq!((clients.held_bytes, clients.room_for(first, 1)), (10, Room::NoClient));
        clients.open(second, None);
        clients.job_begun(second);
        clients.reply_bytes_changed(first, 10, 0);
        clients.job_released(first);
        assert_eq!((clients.jobs_of(first), clients.jobs_of(second), clients.held_bytes), (0, 1, 0));
        assert!(clients.idle.is_empty());
        clients.late_write_ended(first);
        assert!(!clients.has_late_writes(second));
        clients.job_released(second);
        assert_eq!(clients.idle, [second]);
    }

    #[test]
    fn a_client_has_room_for_one_value_of_any_size_or_several_within_its_limit() {
        let mut clients = Clients::new(100_000, 1_000_000);
        let client = session(1);
        clients.open(client, None);
        assert_eq!(clients.room_for(client, 900_000), Room::Enough);
        clients.reply_bytes_changed(client, 0, 40_000);
        clients.buffers_changed(client, 50_000, 0);
        assert_eq!(clients.room_for(client, 10_000), Room::Enough);
        assert_eq!(clients.room_for(client, 10_001), Room::ClientIsFull);
        clients.held_by_others = 905_000;
        assert_eq!(clients.room_for(client, 10_000), Room::ProxyIsFull);
        let other = SessionRef { slot: 4, connection: 2 };
        clients.open(other, None);
        assert_eq!(clients.room_for(other, ALWAYS_BYTES), Room::Enough);
        assert_eq!(clients.room_for(other, ALWAYS_BYTES + 1), Room::ProxyIsFull);
    }
}
