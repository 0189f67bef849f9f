//! The events that the process must handle. An event stays recorded until it is handled, no matter how many others arrive
//! before it.

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
}

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
}

impl Events {
    /// Adds an event.
    pub(super) fn add(&self, event: Event) {
        let mut waiting = self.lock();
        match event {
            Event::End => waiting.end = true,
            Event::TakenOver => waiting.taken_over = true,
            Event::Reload => waiting.reload = true,
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
