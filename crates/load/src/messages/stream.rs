//! The messages of one sender in one queue: which of them may still be received, in one bit each from the oldest of them on,
//! and a word more about those that are not simply acknowledged and for anyone.

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
    /// A bit for each message that has been sent, or may have been, and not been received.
    waiting: VecDeque<u64>,
    /// Messages that are not both acknowledged and for anyone, or were received before they were acknowledged.
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
    Acknowledged,
    InDoubt,
}

/// What a message that was received is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// Received for the first time.
    First {
        /// Nobody knew whether it had been sent, so nobody knows when.
        was_in_doubt: bool,
    },
    /// Received before.
    Again,
    /// Never sent.
    Unknown,
}

/// A message that was sent, or may have been, and not received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Its receiver, or [`ANYONE`].
    pub(crate) receiver: u32,
    /// Whether nobody knows that it was sent.
    pub(crate) is_in_doubt: bool,
}

impl Stream {
    /// The number of the next message.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Begins a send.
    pub(crate) fn issue(&mut self, receiver: u32) -> u32 {
        let number = self.next;
        self.next += 1;
        self.set(number, true);
        self.marks.insert(number, Mark { receiver, state: State::InFlight });
        number
    }

    /// The send was acknowledged.
    pub(crate) fn acknowledge(&mut self, number: u32) {
        let is_waiting = self.is_waiting(number);
        match self.marks.get_mut(&number) {
            Some(mark) if is_waiting && mark.receiver != ANYONE => mark.state = State::Acknowledged,
            _ => drop(self.marks.remove(&number)),
        }
    }

    /// The send was refused: nothing was done. False when it was received all the same.
    pub(crate) fn refuse(&mut self, number: u32) -> bool {
        self.marks.remove(&number);
        let is_waiting = self.is_waiting(number);
        if is_waiting {
            self.set(number, false);
            if number + 1 == self.next {
                // Its number is free again.
                self.next = number;
            }
        }
        is_waiting
    }

    /// Nobody knows whether the send was done. True when it is known already, because it was received.
    pub(crate) fn mark_in_doubt(&mut self, number: u32) -> bool {
        if self.is_waiting(number) {
            self.marks.entry(number).and_modify(|mark| mark.state = State::InDoubt);
            false
        } else {
            self.marks.remove(&number);
            true
        }
    }

    /// A message was received, and is gone.
    pub(crate) fn receive(&mut self, number: u32) -> Receipt {
        if number >= self.next {
            return Receipt::Unknown;
        }
        if !self.is_waiting(number) {
            return Receipt::Again;
        }
        self.set(number, false);
        match self.marks.get(&number).map(|mark| mark.state) {
            // Its acknowledgement is still to come.
            Some(State::InFlight) => Receipt::First { was_in_doubt: false },
            Some(state) => {
                self.marks.remove(&number);
                Receipt::First { was_in_doubt: state == State::InDoubt }
            }
            None => Receipt::First { was_in_doubt: false },
        }
    }

    /// What was not received.
    pub(crate) fn left(&self) -> impl Iterator<Item = Left> + '_ {
        let words = (self.base..).step_by(WORD_BITS as usize).zip(&self.waiting);
        let numbers = words.flat_map(|(first, word)| {
            (0..WORD_BITS).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        });
        numbers.map(|number| match self.marks.get(&number) {
            None => Left { receiver: ANYONE, is_in_doubt: false },
            Some(mark) => Left { receiver: mark.receiver, is_in_doubt: mark.state != State::Acknowledged },
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
        // The last word stays: numbers are still to come in it.
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
    fn what_is_left_has_its_receiver() {
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
    fn a_doubt_ends_when_the_message_came_before_it() {
        let mut stream = Stream::default();
        let number = stream.issue(5);
        assert_eq!(stream.receive(number), FIRST);
        assert!(stream.mark_in_doubt(number));
        assert!(stream.marks.is_empty());
    }

    #[test]
    fn a_refused_number_is_given_again_unless_it_came_all_the_same() {
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
    fn what_is_over_takes_no_memory() {
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
        fn it_is_a_set_of_numbers(steps in proptest::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..600)) {
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
