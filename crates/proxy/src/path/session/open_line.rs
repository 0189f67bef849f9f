//! What the files of a session share: the state of a line of keys, and the limits of requests.

use crate::path::order::Access;
use wire::{Request, Verb};

/// The most keys of one part, and of one client in flight. If the values are larger than expected, so many of them may have
/// been requested on a connection that all clients share.
pub(super) const KEYS_MAX: usize = 128;

/// A line of keys of which some have not been taken yet. The input continues with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenLine {
    pub(super) verb: Verb,
    pub(super) exptime: i64,
    /// All parts of a line have the same sequence number.
    pub(super) sequence: u32,
    pub(super) has_keys: bool,
    /// The number of its next keys that the rate limits have admitted, if there are rate limits.
    pub(super) admitted: usize,
    pub(super) rest: Rest,
}

/// What happens to the rest of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Its keys are requested.
    Taken,
    /// It is dropped, because of an invalid key, or because the listener does not allow the command. So many bytes of it were.
    Dropped(usize),
    /// It is dropped, because an earlier part has failed. The line has had no last part yet.
    Failed,
}

/// The expected size of the first reply to a client, for each key.
pub(super) const FIRST_KEY_BYTES: u32 = 1024;

/// The most keys of a client in flight before the first reply, while its value sizes are unknown. One request can have more.
pub(super) const FIRST_KEYS_MAX: u32 = 32;

/// Whether a request may change a value that an earlier read returns. Touches do not, unless they expire the value.
pub(super) fn may_change_values(request: &Request<'_>, access: Access) -> bool {
    match request {
        Request::Get { verb: Verb::Gat | Verb::Gats, exptime, .. } => *exptime < 0,
        _ => matches!(access, Access::Write | Access::WriteAlone),
    }
}
