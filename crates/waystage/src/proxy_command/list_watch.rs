//! Notices that a file of servers has changed or gone, and that a name has other addresses or SRV records. Its thread starts with the first
//! configuration that has any.

use crate::proxy_command::events::{Event, Events};
use crate::proxy_command::file_watch::{FileVersion, version};
use crate::proxy_command::lists::Lists;
use crate::proxy_command::names::{Answer, Names, Question};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, sleep};
use std::time::Duration;

/// The interval at which the files are compared.
const INTERVAL: Duration = Duration::from_secs(1);

/// Watches the lists of the configuration in force.
#[derive(Debug)]
pub(super) struct ListWatch {
    names: Names,
    events: Arc<Events>,
    watched: Arc<Mutex<Watched>>,
    is_running: bool,
}

#[derive(Debug, Default)]
struct Watched {
    files: BTreeMap<PathBuf, Watch>,
    hosts: Vec<Host>,
    /// The longest time between two lookups of a name. Zero: names are not looked up again.
    every: Duration,
}

#[derive(Debug)]
struct Host {
    name: Question,
    /// The answer in use, or reported since.
    answer: Answer,
    /// The time since the last lookup.
    waited: Duration,
}

/// The versions of a file. None if there is no file.
#[derive(Debug)]
struct Watch {
    reported: Option<FileVersion>,
    last: Option<FileVersion>,
}

impl ListWatch {
    pub(super) fn new(names: Names, events: Arc<Events>) -> ListWatch {
        ListWatch { names, events, watched: Arc::default(), is_running: false }
    }

    /// Watches these lists instead of others.
    ///
    /// # Errors
    /// If the thread cannot start. The error is one line.
    pub(super) fn set(&mut self, lists: &Lists, every: Duration) -> Result<(), String> {
        let watch =
            |(path, &read): (&PathBuf, &Option<FileVersion>)| (path.clone(), Watch { reported: read, last: read });
        let mut watched = lock(&self.watched);
        watched.files = lists.versions().iter().map(watch).collect();
        let waited = |name: &Question| watched.hosts.iter().find(|host| host.name == *name).map(|host| host.waited);
        let host = |(name, answer): &(Question, Answer)| Host {
            name: name.clone(),
            answer: answer.clone(),
            waited: waited(name).unwrap_or_default(),
        };
        (watched.hosts, watched.every) = (lists.hosts().iter().map(host).collect(), every);
        drop(watched);
        if self.is_running || lists.is_empty() {
            return Ok(());
        }
        let (names, events, watched) = (self.names.clone(), self.events.clone(), self.watched.clone());
        let work = move || loop {
            sleep(INTERVAL);
            if lock(&watched).tick(INTERVAL, &names) {
                events.add(Event::Servers);
            }
        };
        let spawned = Builder::new().name("lists".into()).spawn(work);
        spawned.map_err(|error| format!("cannot watch the lists of servers: {error}"))?;
        self.is_running = true;
        Ok(())
    }
}

impl Watched {
    /// Returns whether a file has changed since the last tick but one, or a name has another answer than the one in use. Starts the lookups
    /// that are due.
    fn tick(&mut self, waited: Duration, names: &Names) -> bool {
        let has_other_answer = self.hosts.iter_mut().fold(false, |is_other, host| {
            host.waited += waited;
            if !self.every.is_zero() && host.waited >= names.interval(&host.name, self.every) {
                host.waited = Duration::ZERO;
                names.begin(&host.name, None);
            }
            let before = std::mem::replace(&mut host.answer, names.answer(&host.name));
            is_other | (before != host.answer)
        });
        self.files.iter_mut().fold(has_other_answer, |is_other, (path, watch)| is_other | watch.look(version(path)))
    }
}

impl Watch {
    /// Whether two calls in a row have found the same version, which is new: a program may write the file in pieces, or remove it
    /// before it writes another one.
    fn look(&mut self, now: Option<FileVersion>) -> bool {
        let is_new = now == self.last && now != self.reported;
        self.last = now;
        if is_new {
            self.reported = now;
        }
        is_new
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_reported_once_when_it_lasts_and_so_is_the_loss_of_the_file() {
        let some = |length: u64| Some((1, length, 0, 0));
        let mut watch = Watch { reported: some(1), last: some(1) };
        let seen = [some(1), some(2), some(3), some(3), some(3), None, some(3), None, None, None, some(3), some(3)];
        let reported: Vec<bool> = seen.into_iter().map(|now| watch.look(now)).collect();
        let expected = [false, false, false, true, false, false, false, false, true, false, false, true];
        assert_eq!(reported, expected);
    }
}
