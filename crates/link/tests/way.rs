//! One direction of a link by a clock of the test. Socket pairs stand for the devices.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use clock::{Clock, ManualClock, Nanos};
use link::{Counters, Direction, Way};
use rustix::io::{Errno, read, write};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

const FRAME: [u8; 1000] = [7; 1000];
const FREE: Direction = Direction { delay_ms: 0.0, rate_mbit: 0.0, queue_bytes: 4 << 20, loss: 0.0, late_ms: 0.1 };

fn pair() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None).unwrap()
}

/// The devices of both ends, as (outer, inner).
struct Ends {
    near: (OwnedFd, OwnedFd),
    far: (OwnedFd, OwnedFd),
    clock: Clock,
    hand: ManualClock,
}

impl Ends {
    fn new() -> Ends {
        let (clock, hand) = Clock::manual(Nanos(1_000_000_000));
        Ends { near: pair(), far: pair(), clock, hand }
    }

    fn way(&self, settings: Direction) -> Way<'_> {
        Way::new(&settings, self.near.1.as_fd(), self.far.1.as_fd(), 1)
    }

    fn send(&self, way: &mut Way<'_>, frames: usize, frame: &[u8]) {
        for _ in 0..frames {
            write(&self.near.0, frame).unwrap();
            way.receive(&self.clock).unwrap();
        }
    }

    /// Advances the clock, sends what is due, and returns how many frames have arrived.
    fn after(&self, way: &mut Way<'_>, ms: f64) -> usize {
        self.hand.advance(Duration::from_nanos((ms * 1e6) as u64));
        way.send_due(&self.clock);
        let mut room = [0; 2048];
        std::iter::from_fn(|| read(&self.far.0, &mut room).ok()).count()
    }
}

#[test]
fn a_frame_leaves_after_the_delay_and_not_before() {
    let ends = Ends::new();
    let mut way = ends.way(Direction { delay_ms: 30.0, ..FREE });
    ends.send(&mut way, 1, &FRAME);
    assert_eq!(way.next_due_ns(), Some(1_030_000_000));
    assert_eq!(ends.after(&mut way, 29.999), 0);
    assert_eq!(ends.after(&mut way, 0.001), 1);
    assert_eq!(*way.counters(), Counters { frames: 1, bytes: 1000, ..Counters::default() });
}

#[test]
fn a_frame_arrives_as_it_was_sent() {
    let ends = Ends::new();
    let mut way = ends.way(FREE);
    for frame in [&b"first"[..], &[9; 1514], b"x"] {
        ends.send(&mut way, 1, frame);
        way.send_due(&ends.clock);
        let mut room = [0; 2048];
        let bytes = read(&ends.far.0, &mut room).unwrap();
        assert_eq!(&room[..bytes], frame);
    }
}

#[test]
fn late_frames_are_counted_and_delay_no_later_one() {
    let ends = Ends::new();
    let mut way = ends.way(Direction { delay_ms: 5.0, late_ms: 0.5, ..FREE });
    ends.send(&mut way, 1, &FRAME);
    ends.hand.advance(Duration::from_millis(4));
    ends.send(&mut way, 1, &FRAME);
    assert_eq!(ends.after(&mut way, 1.75), 1, "0.75 ms late; the second is due 4 ms after the first");
    assert_eq!(ends.after(&mut way, 3.25), 1);
    let counted = *way.counters();
    assert_eq!((counted.late_frames, counted.late_sum_ns, counted.late_max_ns), (1, 750_000, 750_000));
}

#[test]
fn the_rate_spaces_frames_after_the_delay() {
    let ends = Ends::new();
    // 1000 bytes take 100 ms at 0.08 Mbit/s.
    let mut way = ends.way(Direction { delay_ms: 5.0, rate_mbit: 0.08, ..FREE });
    ends.send(&mut way, 10, &FRAME);
    assert_eq!(ends.after(&mut way, 104.9), 0);
    assert_eq!(ends.after(&mut way, 0.2), 1);
    for _ in 0..9 {
        assert_eq!(ends.after(&mut way, 100.0), 1);
    }
    assert_eq!(way.next_due_ns(), None);
}

#[test]
fn frames_that_do_not_fit_are_dropped_and_counted() {
    let ends = Ends::new();
    // A frame takes a second. One is being sent, three wait.
    let mut way = ends.way(Direction { rate_mbit: 0.008, queue_bytes: 3000, ..FREE });
    ends.send(&mut way, 10, &FRAME);
    assert_eq!(way.counters().dropped, 6);
    assert_eq!(ends.after(&mut way, 4000.0), 4);
}

#[test]
fn losses_have_the_share_that_was_set() {
    let ends = Ends::new();
    let mut way = ends.way(Direction { loss: 0.2, ..FREE });
    ends.send(&mut way, 2000, b"x");
    assert!((300..500).contains(&way.counters().lost), "{}", way.counters().lost);
}

#[test]
fn a_target_that_is_down_loses_the_frame_and_not_the_link() {
    let ends = Ends::new();
    let mut way = ends.way(FREE);
    let (closed, inner) = pair();
    drop(closed);
    let mut down = Way::new(&FREE, ends.near.1.as_fd(), inner.as_fd(), 1);
    ends.send(&mut down, 1, &FRAME);
    down.send_due(&ends.clock);
    assert_eq!(down.counters().dropped, 1);
    ends.send(&mut way, 1, &FRAME);
    assert_eq!(ends.after(&mut way, 0.0), 1);
}

#[test]
fn a_source_that_fails_is_an_error() {
    let ends = Ends::new();
    let file = std::fs::File::create(tempfile::NamedTempFile::new().unwrap().path()).unwrap();
    let error = Way::new(&FREE, file.as_fd(), ends.far.1.as_fd(), 1).receive(&ends.clock).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()));
}

#[test]
fn the_end_of_a_source_is_an_error() {
    let ends = Ends::new();
    let nothing = std::fs::File::open("/dev/null").unwrap();
    let error = Way::new(&FREE, nothing.as_fd(), ends.far.1.as_fd(), 1).receive(&ends.clock).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[test]
fn a_frame_with_an_endless_delay_does_not_leave() {
    let ends = Ends::new();
    let mut way = ends.way(Direction { delay_ms: 1e300, ..FREE });
    ends.send(&mut way, 1, &FRAME);
    assert_eq!(ends.after(&mut way, 1000.0), 0);
}

#[test]
fn the_file_has_seven_numbers_for_each_direction() {
    let down = Counters { frames: 1, bytes: 2, dropped: 3, lost: 4, late_frames: 5, late_sum_ns: 6, late_max_ns: 7 };
    let bytes = Counters::both(&Counters::default(), &down);
    let numbers: Vec<u64> = bytes.chunks(8).map(|number| u64::from_ne_bytes(number.try_into().unwrap())).collect();
    assert_eq!(numbers, [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7]);
}
