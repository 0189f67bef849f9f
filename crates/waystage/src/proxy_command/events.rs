//! The events that the process must handle. An event stays recorded until it is handled, no matter how many others arrive
//! before it.

use proxy::ChangeRequest;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// An event for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// SIGTERM or SIGINT.
    End,
    /// A successor has taken over.
    TakenOver,
    /// SIGHUP, or the configuration file has changed.
    Reload,
    /// A file of servers has changed, or a host name has other addresses.
    Servers,
    /// An operator requests a change of a server: `take_change` has it.
    Change,
}

/// The most requests to change a server that wait.
const CHANGES_MAX: usize = 8;

/// The events that have not been handled. Several reloads count as one, because each reads the newest file.
#[derive(Debug, Default)]
pub(super) struct Events {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Which events wait.
#[derive(Debug, Default)]
struct Waiting {
    end: bool,
    taken_over: bool,
    reload: bool,
    servers: bool,
    changes: VecDeque<ChangeRequest>,
}

impl Events {
    /// Adds a request to change a server, unless too many wait.
    pub(super) fn add_change(&self, request: ChangeRequest) {
        let mut waiting = self.lock();
        if waiting.changes.len() == CHANGES_MAX {
            drop(waiting);
            return request.reply(Err("other changes are in progress; try again".into()));
        }
        waiting.changes.push_back(request);
        self.changed.notify_all();
    }

    /// Takes the oldest request to change a server.
    pub(super) fn take_change(&self) -> Option<ChangeRequest> {
        self.lock().changes.pop_front()
    }

    /// Adds an event.
    pub(super) fn add(&self, event: Event) {
        let mut waiting = self.lock();
        match event {
            Event::End => waiting.end = true,
            Event::TakenOver => waiting.taken_over = true,
            Event::Reload => waiting.reload = true,
            Event::Servers => waiting.servers = true,
            // It comes with its request: `add_change`.
            Event::Change => {}
        }
        self.changed.notify_all();
    }

    /// Waits for the next event. The end is returned before all other events, and stays set.
    pub(super) fn next(&self) -> Event {
        let mut waiting = self.lock();
        loop {
            if waiting.end {
                return Event::End;
            }
            if std::mem::take(&mut waiting.taken_over) {
                return Event::TakenOver;
            }
            if std::mem::take(&mut waiting.reload) {
                return Event::Reload;
            }
            if std::mem::take(&mut waiting.servers) {
                return Event::Servers;
            }
            if !waiting.changes.is_empty() {
                return Event::Change;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the process must end.
    pub(super) fn is_ending(&self) -> bool {
        self.lock().end
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_not_lost_behind_any_number_of_reloads() {
        let events = Events::default();
        (0..1000).for_each(|_| events.add(Event::Reload));
        assert!(!events.is_ending());
        events.add(Event::End);
        events.add(Event::TakenOver);
        assert_eq!((events.next(), events.next(), events.is_ending()), (Event::End, Event::End, true));
    }

    #[test]
    fn reloads_count_as_one_until_they_are_handled() {
        let events = Events::default();
        (0..3).for_each(|_| events.add(Event::Reload));
        events.add(Event::TakenOver);
        assert_eq!((events.next(), events.next()), (Event::TakenOver, Event::Reload));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| events.next());
            events.add(Event::Reload);
            assert_eq!(next.join().unwrap(), Event::Reload);
        });
    }
}
