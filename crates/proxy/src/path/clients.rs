//! What each client of one event loop has in the proxy, by the slot of its session: its jobs, and the bytes held for it.
//! Sessions, jobs and backend connections look here, so it knows none of them.

use crate::path::job::SessionRef;

/// What one client has in the proxy.
#[derive(Clone, Copy, Debug)]
struct Client {
    /// The number of the connection, since slots are reused. `SessionRef::NONE` after the client has left.
    connection: u32,
    /// Jobs that were not released, whether their reply was sent or not.
    jobs: u32,
    /// Bytes of replies in these jobs.
    reply_bytes: usize,
    /// Answered writes that some replicas have not answered yet.
    late_writes: u32,
    /// Its next request is blocked, perhaps until there are no late writes.
    is_blocked: bool,
}

/// All clients of one loop.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    slots: Vec<Client>,
    /// Bytes of replies in all jobs, also in those whose client has left.
    reply_bytes: usize,
    /// Clients move to another loop, so that the end of a client's last job must be noticed.
    pub(crate) notes_idle: bool,
    /// If `notes_idle`: the clients whose last job has ended since the event loop looked.
    pub(crate) idle: Vec<SessionRef>,
    /// Blocked clients whose last late write has ended since the event loop looked.
    pub(crate) unblocked: Vec<SessionRef>,
}

impl Client {
    fn new(connection: u32) -> Client {
        Client { connection, jobs: 0, reply_bytes: 0, late_writes: 0, is_blocked: false }
    }
}

impl Clients {
    /// Begins to count for a client that has connected. Jobs that a former client of this slot has left no longer count.
    pub(crate) fn open(&mut self, session: SessionRef) {
        let slot = session.slot as usize;
        if slot >= self.slots.len() {
            self.slots.resize(slot + 1, Client::new(SessionRef::NONE.connection));
        }
        self.slots[slot] = Client::new(session.connection);
    }

    /// The client has left.
    pub(crate) fn close(&mut self, session: SessionRef) {
        if let Some(client) = self.of(session) {
            client.connection = SessionRef::NONE.connection;
        }
    }

    fn of(&mut self, session: SessionRef) -> Option<&mut Client> {
        self.slots.get_mut(session.slot as usize).filter(|client| client.connection == session.connection)
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

    /// Changes the number of bytes held in the jobs of a client.
    pub(crate) fn reply_bytes_changed(&mut self, session: SessionRef, before: usize, after: usize) {
        self.reply_bytes = self.reply_bytes - before + after;
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
        let client = self.slots.get(session.slot as usize);
        client.is_some_and(|client| client.connection == session.connection && client.late_writes > 0)
    }

    /// The number of jobs of a client that were not released.
    pub(crate) fn jobs_of(&self, session: SessionRef) -> u32 {
        self.slots
            .get(session.slot as usize)
            .filter(|client| client.connection == session.connection)
            .map_or(0, |client| client.jobs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blocked_client_is_listed_when_its_last_late_write_ends() {
        let mut clients = Clients::default();
        let session = SessionRef { slot: 0, connection: 7 };
        clients.open(session);
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
        let [first, second] = [1, 2].map(|connection| SessionRef { slot: 3, connection });
        clients.open(first);
        clients.job_begun(first);
        clients.reply_bytes_changed(first, 0, 10);
        assert_eq!((clients.jobs_of(first), clients.jobs_of(second)), (1, 0));
        clients.close(first);
        clients.open(second);
        clients.job_begun(second);
        clients.reply_bytes_changed(first, 10, 0);
        clients.job_released(first);
        assert_eq!((clients.jobs_of(first), clients.jobs_of(second), clients.reply_bytes), (0, 1, 0));
        assert!(clients.idle.is_empty());
        clients.late_write_ended(first);
        assert!(!clients.has_late_writes(second));
        clients.job_released(second);
        assert_eq!(clients.idle, [second]);
    }
}
