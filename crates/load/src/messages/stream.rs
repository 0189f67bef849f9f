//! The messages of one sender in one queue. One bit for each message, from the oldest on, records whether it may still be
//! received. A map has the details of messages that are not simply acknowledged and for any receiver.

use super::body::ANYONE;
use std::collections::{HashMap, VecDeque};

const WORD_BITS: u32 = u64::BITS;

/// The messages of one sender in one queue.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The number of the next message.
    next: u32,
    /// The number of the first bit.
    base: u32,
    /// One bit for each message; it is set if the message was sent, or may have been, and has not been received.
    waiting: VecDeque<u64>,
    /// Messages with a receiver, unacknowledged messages, and messages received before their acknowledgement.
    marks: HashMap<u32, Mark>,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    receiver: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// In flight, and already received with a lease.
    Seen,
    Acknowledged,
    InDoubt,
}

/// What is known of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// It is received for the first time.
    First {
        /// The outcome of its send was unknown, so the time of the send is unknown, too.
        was_in_doubt: bool,
    },
    /// It was received before.
    Again,
    /// It was never sent.
    Unknown,
}

/// A message that was sent, or may have been, and has not been received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) number: u32,
    /// Its receiver, or [`ANYONE`].
    pub(crate) receiver: u32,
    /// Whether the outcome of its send is unknown.
    pub(crate) is_in_doubt: bool,
}

impl Stream {
    /// The number of the next message.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Starts a send.
    pub(crate) fn issue(&mut self, receiver: u32) -> u32 {
        let number = self.next;
        self.next += 1;
        self.set(number, true);
        self.marks.insert(number, Mark { receiver, state: State::InFlight });
        number
    }

    /// Records that the send was acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u32) {
        let is_waiting = self.is_waiting(number);
        match self.marks.get_mut(&number) {
            Some(mark) if is_waiting && mark.receiver != ANYONE => mark.state = State::Acknowledged,
            _ => drop(self.marks.remove(&number)),
        }
    }

    /// Whether the message was received with a lease while its send was in flight.
    fn is_seen(&self, number: u32) -> bool {
        self.marks.get(&number).is_some_and(|mark| mark.state == State::Seen)
    }

    /// Records that the send was refused. Returns false if the message has been received nevertheless.
    pub(crate) fn refuse(&mut self, number: u32) -> bool {
        if self.is_seen(number) {
            self.acknowledge(number);
            return false;
        }
        self.marks.remove(&number);
        let is_waiting = self.is_waiting(number);
        if is_waiting {
            self.set(number, false);
            if number + 1 == self.next {
                // Its number can be used again.
                self.next = number;
            }
        }
        is_waiting
    }

    /// Records that the outcome of the send is unknown. Returns true if the message has already been received.
    pub(crate) fn mark_in_doubt(&mut self, number: u32) -> bool {
        if self.is_seen(number) {
            self.acknowledge(number);
            return true;
        }
        if self.is_waiting(number) {
            self.marks.entry(number).and_modify(|mark| mark.state = State::InDoubt);
            false
        } else {
            self.marks.remove(&number);
            true
        }
    }

    /// Records that a message was received with a lease. It exists for certain, and stays until it is removed.
    pub(crate) fn lease(&mut self, number: u32) -> Receipt {
        if number >= self.next {
            return Receipt::Unknown;
        }
        if !self.is_waiting(number) {
            return Receipt::Again;
        }
        let state = self.marks.get(&number).map(|mark| mark.state);
        if state == Some(State::InFlight) {
            self.marks.entry(number).and_modify(|mark| mark.state = State::Seen);
        } else if state == Some(State::InDoubt) {
            self.acknowledge(number);
        }
        Receipt::First { was_in_doubt: state == Some(State::InDoubt) }
    }

    /// Records that a message was received and removed.
    pub(crate) fn receive(&mut self, number: u32) -> Receipt {
        if number >= self.next {
            return Receipt::Unknown;
        }
        if !self.is_waiting(number) {
            return Receipt::Again;
        }
        self.set(number, false);
        match self.marks.get(&number).map(|mark| mark.state) {
            // Its acknowledgement has not arrived yet.
            Some(State::InFlight | State::Seen) => Receipt::First { was_in_doubt: false },
            Some(state) => {
                self.marks.remove(&number);
                Receipt::First { was_in_doubt: state == State::InDoubt }
            }
            None => Receipt::First { was_in_doubt: false },
        }
    }

    /// The messages that have not been received.
    pub(crate) fn left(&self) -> impl Iterator<Item = Left> + '_ {
        let words = (self.base..).step_by(WORD_BITS as usize).zip(&self.waiting);
        let numbers = words.flat_map(|(first, word)| {
            (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        });
        numbers.map(|number| match self.marks.get(&number) {
            None => Left { number, receiver: ANYONE, is_in_doubt: false },
            Some(mark) => {
                let is_in_doubt = !matches!(mark.state, State::Acknowledged | State::Seen);
                Left { number, receiver: mark.receiver, is_in_doubt }
            }
        })
    }

    fn is_waiting(&self, number: u32) -> bool {
        let Some(at) = number.checked_sub(self.base) else { return false };
        self.waiting.get((at / WORD_BITS) as usize).is_some_and(|word| word >> (at % WORD_BITS) & 1 == 1)
    }

    fn set(&mut self, number: u32, is_waiting: bool) {
        let Some(at) = number.checked_sub(self.base) else { return };
        let word = (at / WORD_BITS) as usize;
        if word >= self.waiting.len() {
            self.waiting.resize(word + 1, 0);
        }
        let bit = 1 << (at % WORD_BITS);
        if is_waiting {
            self.waiting[word] |= bit;
            return;
        }
        self.waiting[word] &= !bit;
        // Keep the last word for further numbers.
        while self.waiting.len() > 1 && self.waiting.front() == Some(&0) {
            self.waiting.pop_front();
            self.base += WORD_BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const FIRST: Receipt = Receipt::First { was_in_doubt: false };

    fn left(stream: &Stream) -> Vec<(u32, bool)> {
        stream.left().map(|left| (left.receiver, left.is_in_doubt)).collect()
    }

    #[test]
    fn a_message_is_received_once_before_or_after_its_acknowledgement() {
        let mut stream = Stream::default();
        assert_eq!((stream.issue(ANYONE), stream.issue(7)), (0, 1));
        assert_eq!(stream.receive(1), FIRST);
        stream.acknowledge(0);
        stream.acknowledge(1);
        assert_eq!((stream.receive(0), stream.receive(0), stream.receive(1)), (FIRST, Receipt::Again, Receipt::Again));
        assert_eq!(stream.receive(2), Receipt::Unknown);
        assert_eq!((left(&stream), stream.marks.len()), (vec![], 0));
    }

    #[test]
    fn remaining_messages_have_their_receiver() {
        let mut stream = Stream::default();
        for receiver in [ANYONE, 3, 4] {
            let number = stream.issue(receiver);
            stream.acknowledge(number);
        }
        let doubtful = stream.issue(ANYONE);
        assert!(!stream.mark_in_doubt(doubtful));
        assert_eq!(left(&stream), [(ANYONE, false), (3, false), (4, false), (ANYONE, true)]);
        assert_eq!(stream.receive(doubtful), Receipt::First { was_in_doubt: true });
        assert_eq!(stream.receive(doubtful), Receipt::Again);
    }

    #[test]
    fn a_send_is_not_in_doubt_if_its_message_was_received() {
        let mut stream = Stream::default();
        let number = stream.issue(5);
        assert_eq!(stream.receive(number), FIRST);
        assert!(stream.mark_in_doubt(number));
        assert!(stream.marks.is_empty());
    }

    #[test]
    fn a_leased_message_exists_and_stays() {
        let mut stream = Stream::default();
        for number in 0..3 {
            assert_eq!(stream.issue(ANYONE), number);
            if number != 1 {
                assert_eq!(stream.lease(number), FIRST);
            }
        }
        assert!(!stream.refuse(0), "it was refused and done");
        assert!(!stream.mark_in_doubt(1));
        assert_eq!(stream.lease(1), Receipt::First { was_in_doubt: true });
        assert!(stream.mark_in_doubt(2), "it has arrived");
        assert_eq!(left(&stream), [(ANYONE, false); 3]);
        assert_eq!((stream.receive(0), stream.lease(0), stream.lease(9)), (FIRST, Receipt::Again, Receipt::Unknown));
    }

    #[test]
    fn a_refused_number_is_reused_unless_its_message_arrived() {
        let mut stream = Stream::default();
        let number = stream.issue(ANYONE);
        assert!(stream.refuse(number));
        assert_eq!(stream.receive(number), Receipt::Unknown);
        let number = stream.issue(ANYONE);
        assert_eq!((number, stream.receive(number)), (0, FIRST));
        assert!(!stream.refuse(number));
        assert_eq!(stream.issue(ANYONE), 1);
    }

    #[test]
    fn finished_messages_take_no_memory() {
        let mut stream = Stream::default();
        for _ in 0..100_000 {
            let number = stream.issue(ANYONE);
            stream.acknowledge(number);
            assert_eq!(stream.receive(number), FIRST);
        }
        assert!(stream.waiting.len() <= 2 && stream.marks.is_empty());
    }

    proptest! {
        #[test]
        fn a_stream_is_a_set_of_numbers(steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..600)) {
            let (mut stream, mut truth) = (Stream::default(), BTreeSet::new());
            for (sends, which) in steps {
                if sends {
                    let number = stream.issue(ANYONE);
                    stream.acknowledge(number);
                    truth.insert(number);
                } else if stream.next() > 0 {
                    let number = which.index(stream.next() as usize) as u32;
                    let expected = if truth.remove(&number) { FIRST } else { Receipt::Again };
                    prop_assert_eq!(stream.receive(number), expected);
                }
            }
            prop_assert_eq!(stream.left().count(), truth.len());
        }
    }
}
