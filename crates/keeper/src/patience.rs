//! The lab's ends of the conversation. The keeper waits for either of them at most as long as the lab may be silent, also in the middle
//! of a message: without this, a network that fails at that moment would keep its programs until TCP gives up.

use clock::{Clock, duration_ns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the keeper looks for a signal that arrived just before it began to wait.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A pipe that is ready takes as many bytes without blocking.
const PIECE_BYTES: usize = 4096;

/// How long the keeper waits.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) silence: Duration,
    /// Set by a signal.
    pub(crate) stopped: Arc<AtomicBool>,
    pub(crate) clock: Clock,
}

/// A stream that fails, and stays failed, when nothing has moved for too long, or after a signal.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Patience,
    is_over: bool,
}

impl<S: AsFd> Patient<S> {
    pub(crate) fn new(stream: S, patience: &Patience) -> Patient<S> {
        Patient { stream, patience: patience.clone(), is_over: false }
    }

    /// Waits until the stream is ready, or has ended.
    fn wait(&mut self, flags: PollFlags) -> io::Result<()> {
        let Patience { silence, stopped, clock } = &self.patience;
        let until_ns = clock.now().0.saturating_add(duration_ns(*silence));
        while !self.is_over && !stopped.load(Ordering::Relaxed) {
            let ready = poll(&mut [PollFd::new(&self.stream, flags)], Some(&WAIT));
            if ready.is_ok_and(|ready| ready > 0) {
                return Ok(());
            }
            self.is_over = clock.now().0 > until_ns;
        }
        self.is_over = true;
        // Not the kind of an interrupted call, which would be repeated.
        Err(ErrorKind::TimedOut.into())
    }
}

impl<S: Read + AsFd> Read for Patient<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(PollFlags::IN)?;
        self.stream.read(buffer)
    }
}

impl<S: Write + AsFd> Write for Patient<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.stream.write(&bytes[..bytes.len().min(PIECE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
