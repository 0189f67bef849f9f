//! Lists: values that a client of the simulation appends to and prepends to. An element that was acknowledged is in the list once;
//! a second one would mean that the proxy has repeated a request that changes a value.

use super::simulated_promise::{History, Promise};
use clock::Nanos;

/// A list as a client has read it: `3.1.c0l 0 7 .4` is version 7 with the elements 1 and 3 before it and 4 behind it.
pub(crate) struct List {
    pub(crate) writer: usize,
    pub(crate) version: u64,
    pub(crate) elements: Vec<u64>,
}

/// The elements that one client has sent to its list.
#[derive(Default)]
pub(crate) struct Appends {
    sent: Vec<Append>,
}

/// One element.
struct Append {
    version: u64,
    /// The number of writes of the whole list before it.
    after: usize,
    acknowledged: Option<Nanos>,
}

impl List {
    /// Parses a value of this key.
    pub(crate) fn parse(key: &str, data: &[u8]) -> Option<List> {
        let text = std::str::from_utf8(data).ok()?;
        let (front, rest) = text.split_once(&format!("{key} "))?;
        let mut words = rest.splitn(3, ' ');
        let (writer, version) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let front = front.split_terminator('.');
        let back = words.next()?.split('.').skip(1);
        let elements = front.chain(back).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(List { writer, version, elements })
    }
}

impl Appends {
    /// Records an element that was sent after this many writes of the whole list.
    pub(crate) fn add(&mut self, version: u64, after: usize, acknowledged: Option<Nanos>) {
        self.sent.push(Append { version, after, acknowledged });
    }

    /// Checks the elements of a version of the list.
    pub(crate) fn check(
        &self,
        version: u64,
        elements: &[u64],
        promise: &Promise,
        history: &History,
        sent: Nanos,
    ) -> Result<(), String> {
        let Some(writes) = history.up_to(version) else { return Ok(()) };
        for (place, element) in elements.iter().enumerate() {
            if elements[..place].contains(element) {
                return Err(format!("element {element} was appended twice"));
            }
            // With one replica, a failed request may be applied late.
            let may_be_there =
                |append: &Append| append.after >= writes || !promise.mends && append.acknowledged.is_none();
            if !self.sent.iter().any(|append| append.version == *element && may_be_there(append)) {
                return Err(format!("element {element} was not appended to this version"));
            }
        }
        if promise.is_read_elsewhere {
            return Ok(());
        }
        let is_base_acknowledged = history.since(writes - 1)[0].acknowledged.is_some();
        let missing = self.sent.iter().find(|append| {
            let may_be_late = |late| append.acknowledged.is_some_and(|acknowledged| sent < acknowledged + late);
            let is_for_this_version = is_base_acknowledged && append.after == writes && append.acknowledged.is_some();
            is_for_this_version && !elements.contains(&append.version) && !promise.late.is_some_and(may_be_late)
        });
        missing.map_or(Ok(()), |append| Err(format!("element {} is missing from the list", append.version)))
    }
}
