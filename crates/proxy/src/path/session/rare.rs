//! State that only a few clients have at any time. It is boxed, so that a session stays small.

use crate::path::session::line_reply::LineReply;
use crate::path::session::open_line::OpenLine;

/// The state of a client while a value is refused, while a line is forwarded in parts, or while its connection is being
/// closed.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of bytes of a refused value that are still to be received and dropped.
    pub(super) swallow: u64,
    /// A line of keys that is forwarded in parts.
    pub(super) line: Option<OpenLine>,
    /// The reply to a line, the last part of which is not delivered.
    pub(super) reply: Option<LineReply>,
    /// The bytes that were dropped after the last reply.
    pub(super) dropped_bytes: usize,
}

/// The state of most clients.
const NOTHING: &State = &State { swallow: 0, line: None, reply: None, dropped_bytes: 0 };

/// This state, or nothing.
#[derive(Debug, Default)]
pub(super) struct Rare(Option<Box<State>>);

impl Rare {
    pub(super) fn get(&self) -> &State {
        self.0.as_deref().unwrap_or(NOTHING)
    }

    pub(super) fn change(&mut self) -> &mut State {
        self.0.get_or_insert_default()
    }

    /// Whether the next bytes belong to a refused value, or to a line that is taken in parts.
    pub(super) fn is_in_request(&self) -> bool {
        self.get().swallow > 0 || self.get().line.is_some()
    }

    /// Drops the bytes of a refused value; returns how many of the `available` bytes belonged to it.
    pub(super) fn swallow(&mut self, available: usize) -> usize {
        let Some(state) = &mut self.0 else { return 0 };
        let count = state.swallow.min(available as u64);
        state.swallow -= count;
        count as usize
    }

    /// Begins, goes on with or ends a line that is taken in parts.
    pub(super) fn set_line(&mut self, line: Option<OpenLine>) {
        if line.is_some() || self.0.is_some() {
            self.change().line = line;
        }
    }

    /// The reply to a line, the last part of which is not delivered.
    pub(super) fn reply_mut(&mut self) -> Option<&mut LineReply> {
        self.0.as_mut()?.reply.as_mut()
    }

    /// Whether a part is the next one of a line some of whose parts are delivered.
    pub(super) fn continues(&self, sequence: u32) -> bool {
        self.get().reply.as_ref().is_some_and(|reply| reply.is_to(sequence))
    }

    /// Whether the reply to this line is complete although parts of the line may follow.
    pub(super) fn is_over(&self, sequence: u32) -> bool {
        self.get().reply.as_ref().is_some_and(|reply| reply.is_over(sequence))
    }

    /// The bytes of the values that are not sent because an error may take their place.
    pub(super) fn held_bytes(&self) -> usize {
        self.get().reply.as_ref().map_or(0, LineReply::held_bytes)
    }

    /// Frees the box of a client that has no request in flight, unless the next bytes need it.
    pub(super) fn release(&mut self) {
        if !self.is_in_request() {
            self.0 = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_is_freed_when_a_refused_value_has_passed() {
        let mut rare = Rare::default();
        assert_eq!((rare.swallow(10), rare.is_in_request()), (0, false));
        rare.set_line(None);
        assert!(rare.0.is_none());
        rare.change().swallow = 15;
        assert_eq!(rare.swallow(10), 10);
        rare.release();
        assert!(rare.is_in_request());
        assert_eq!(rare.swallow(10), 5);
        rare.release();
        assert!(rare.0.is_none());
    }
}
