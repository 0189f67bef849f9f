//! The driver with io_uring: one `io_uring_enter` for each turn, which submits all writes and waits for reads. Each connection has one
//! multishot read, whose bytes the kernel puts into buffers of a ring.
//!
//! Writes must not wait (`MSG_DONTWAIT`), and report only failure. So when `io_uring_enter` returns, the kernel has copied what it
//! takes, and the output can be reused.

use crate::relay::Relay;
use io_uring::types::{BufRingEntry, Fd, Fixed};
use io_uring::{IoUring, Submitter, cqueue, opcode, squeue};
use std::alloc::{Layout, alloc_zeroed};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

const ENTRIES: u32 = 4096;
const COMPLETIONS: u32 = 16_384;
const FILES: u32 = 8192;
const BUFFERS: u16 = 1024;
const BUFFER_BYTES: usize = 8 * 1024;
const PAGE_BYTES: usize = 4096;
const GROUP: u16 = 0;

/// What has completed; the lower bits of its number are the place of the connection.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const WRITABLE: u64 = 3;
const KIND_SHIFT: u32 = 56;

/// Relays until an error.
pub fn run(relay: Relay, listener: TcpListener, servers: Vec<TcpStream>, is_fixed: bool) -> io::Result<()> {
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .build(ENTRIES)?;
    let (mut submitter, queue, mut completions) = ring.split();
    if is_fixed {
        submitter.register_ring_fd()?;
        submitter.register_files_sparse(FILES)?;
    }
    let buffers = Buffers::new(&submitter)?;
    let mut driver = Driver { relay, submitter, queue, buffers, streams: Vec::new(), is_fixed };
    driver.push(opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).build(), ACCEPT, 0)?;
    for (place, server) in servers.into_iter().enumerate() {
        driver.add(place, server)?;
    }
    let (mut dirty, mut done) = (Vec::new(), Vec::new());
    loop {
        driver.relay.take_dirty(&mut dirty);
        for &place in &dirty {
            driver.send(place)?;
        }
        driver.queue.sync();
        driver.submitter.submit_and_wait(1)?;
        driver.relay.counts.turns += 1;
        completions.sync();
        done.extend(&mut completions);
        // The writes first: what is behind them appends to the outputs.
        driver.end_sends(&dirty, &done)?;
        for entry in done.drain(..) {
            driver.complete(&entry)?;
        }
        driver.buffers.publish();
    }
}

struct Driver<'a> {
    relay: Relay,
    submitter: Submitter<'a>,
    queue: squeue::SubmissionQueue<'a>,
    buffers: Buffers,
    streams: Vec<Option<TcpStream>>,
    is_fixed: bool,
}

impl Driver<'_> {
    fn push(&mut self, entry: squeue::Entry, kind: u64, place: usize) -> io::Result<()> {
        let entry = entry.user_data(kind << KIND_SHIFT | place as u64);
        // SAFETY: the buffers of the ring live as long as the program, and an output is not changed before `submit_and_wait` returns.
        while unsafe { self.queue.push(&entry) }.is_err() {
            self.queue.sync();
            self.submitter.submit()?;
            self.queue.sync();
        }
        Ok(())
    }

    /// Begins to read from a connection.
    fn add(&mut self, place: usize, stream: TcpStream) -> io::Result<()> {
        if self.is_fixed {
            self.submitter.register_files_update(place as u32, &[stream.as_raw_fd()])?;
        }
        if place == self.streams.len() {
            self.streams.push(None);
        }
        self.streams[place] = Some(stream);
        self.receive(place)
    }

    fn receive(&mut self, place: usize) -> io::Result<()> {
        let Some(stream) = &self.streams[place] else { return Ok(()) };
        let entry = if self.is_fixed {
            opcode::RecvMulti::new(Fixed(place as u32), GROUP).build()
        } else {
            opcode::RecvMulti::new(Fd(stream.as_raw_fd()), GROUP).build()
        };
        self.push(entry, RECEIVE, place)
    }

    fn send(&mut self, place: usize) -> io::Result<()> {
        let Some(stream) = &self.streams[place] else { return Ok(()) };
        let output = self.relay.output(place);
        let (bytes, count) = (output.as_ptr(), output.len() as u32);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let entry = if self.is_fixed {
            opcode::Send::new(Fixed(place as u32), bytes, count).flags(flags).build()
        } else {
            opcode::Send::new(Fd(stream.as_raw_fd()), bytes, count).flags(flags).build()
        };
        self.relay.counts.sends += 1;
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS), SEND, place)
    }

    /// Empties the outputs that were written. Those with a completion were not, or not completely.
    fn end_sends(&mut self, written: &[usize], done: &[cqueue::Entry]) -> io::Result<()> {
        let mut unwritten = Vec::new();
        for entry in done.iter().filter(|entry| entry.user_data() >> KIND_SHIFT == SEND) {
            let place = place_of(entry);
            let mut output = std::mem::take(self.relay.output(place));
            output.drain(..entry.result().max(0) as usize);
            unwritten.push((place, output));
            if let Some(stream) = &self.streams[place] {
                let entry = opcode::PollAdd::new(Fd(stream.as_raw_fd()), libc::POLLOUT as u32).build();
                self.push(entry, WRITABLE, place)?;
            }
        }
        for &place in written {
            self.relay.output(place).clear();
        }
        for (place, output) in unwritten {
            *self.relay.output(place) = output;
        }
        Ok(())
    }

    fn complete(&mut self, entry: &cqueue::Entry) -> io::Result<()> {
        let place = place_of(entry);
        match entry.user_data() >> KIND_SHIFT {
            ACCEPT => self.accept(entry.result()),
            RECEIVE => {
                if let Some(buffer) = cqueue::buffer_select(entry.flags()) {
                    self.relay.receive(place, self.buffers.bytes(buffer, entry.result().max(0) as usize));
                    self.buffers.give(buffer);
                }
                if entry.result() == 0 || (entry.result() < 0 && entry.result() != -libc::ENOBUFS) {
                    self.remove(place)
                } else if !cqueue::more(entry.flags()) {
                    self.receive(place)
                } else {
                    Ok(())
                }
            }
            WRITABLE => {
                self.relay.mark_dirty(place);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn accept(&mut self, result: RawFd) -> io::Result<()> {
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
        // SAFETY: the kernel has just opened it for this program.
        let stream = unsafe { TcpStream::from_raw_fd(result) };
        stream.set_nodelay(true)?;
        let place = self.relay.add_client();
        self.add(place, stream)
    }

    fn remove(&mut self, place: usize) -> io::Result<()> {
        if self.streams[place].take().is_some() {
            if self.is_fixed {
                self.submitter.register_files_update(place as u32, &[-1])?;
            }
            self.relay.remove(place);
        }
        Ok(())
    }
}

fn place_of(entry: &cqueue::Entry) -> usize {
    (entry.user_data() & ((1 << KIND_SHIFT) - 1)) as usize
}

/// The ring of read buffers, which the kernel takes from its head and the driver gives back at its tail.
struct Buffers {
    ring: *mut BufRingEntry,
    tail: u16,
    bytes: Vec<u8>,
}

impl Buffers {
    fn new(submitter: &Submitter<'_>) -> io::Result<Buffers> {
        let layout = Layout::from_size_align(BUFFERS as usize * size_of::<BufRingEntry>(), PAGE_BYTES);
        // SAFETY: the size is not zero, and the memory is never freed.
        let ring = unsafe { alloc_zeroed(layout.map_err(io::Error::other)?) }.cast::<BufRingEntry>();
        // SAFETY: the memory is as large as the ring.
        unsafe { submitter.register_buf_ring_with_flags(ring as u64, BUFFERS, GROUP, 0)? };
        let mut buffers = Buffers { ring, tail: 0, bytes: vec![0; BUFFERS as usize * BUFFER_BYTES] };
        (0..BUFFERS).for_each(|buffer| buffers.give(buffer));
        buffers.publish();
        Ok(buffers)
    }

    fn bytes(&self, buffer: u16, count: usize) -> &[u8] {
        &self.bytes[buffer as usize * BUFFER_BYTES..][..count]
    }

    fn give(&mut self, buffer: u16) {
        // SAFETY: the index is within the ring, and the kernel does not read behind the tail.
        let entry = unsafe { &mut *self.ring.add((self.tail % BUFFERS) as usize) };
        entry.set_addr(self.bytes[buffer as usize * BUFFER_BYTES..].as_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel the buffers that were given back.
    fn publish(&self) {
        // SAFETY: the tail is a field of the ring's first entry.
        let tail = unsafe { &*BufRingEntry::tail(self.ring).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}
