//! The work between the drivers: requests of clients go to servers by a hash of their line, and replies back in the order of the
//! requests. A request is a line, a reply ends with `END`. Knows no sockets.

use memchr::{memchr, memmem};
use std::collections::VecDeque;
use std::hint::black_box;

const REPLY_END: &[u8] = b"END\r\n";
/// The request that the relay answers itself, with its counts.
const COUNTS: &[u8] = b"counts\r\n";

/// What a driver counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Waits for events.
    pub turns: u64,
    /// Reads that returned bytes.
    pub receives: u64,
    /// Writes.
    pub sends: u64,
}

/// All connections: servers first, then clients.
pub struct Relay {
    peers: Vec<Peer>,
    servers: usize,
    work: u32,
    free: Vec<usize>,
    /// Connections whose output has grown since the driver last wrote it.
    pub dirty: Vec<usize>,
    pub counts: Counts,
}

/// A client or a server.
#[derive(Default)]
struct Peer {
    /// A line or a reply that is not complete.
    rest: Vec<u8>,
    output: Vec<u8>,
    is_dirty: bool,
    /// Of a client: the replies to its requests, in their order, and the number of the first one.
    replies: VecDeque<Option<Vec<u8>>>,
    first: u64,
    /// Of a server: the clients of its requests, and the numbers of the requests.
    in_flight: VecDeque<(usize, u64)>,
}

impl Relay {
    pub fn new(servers: usize, work: u32) -> Relay {
        let peers = std::iter::repeat_with(Peer::default).take(servers).collect();
        Relay { peers, servers, work, free: Vec::new(), dirty: Vec::new(), counts: Counts::default() }
    }

    /// Adds a client; returns its place.
    pub fn add_client(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.peers.push(Peer::default());
            self.peers.len() - 1
        })
    }

    /// Removes a client.
    pub fn remove(&mut self, place: usize) {
        assert!(place >= self.servers, "a server has closed its connection");
        // The place of a client that left requests behind is not used again: their replies come to it.
        if self.peers[place].replies.is_empty() {
            self.peers[place] = Peer { is_dirty: self.peers[place].is_dirty, ..Peer::default() };
            self.free.push(place);
        }
    }

    /// The bytes to write to a connection.
    pub fn output(&mut self, place: usize) -> &mut Vec<u8> {
        &mut self.peers[place].output
    }

    /// Lists a connection, so that the driver writes its output.
    pub fn mark_dirty(&mut self, place: usize) {
        if !std::mem::replace(&mut self.peers[place].is_dirty, true) {
            self.dirty.push(place);
        }
    }

    /// Takes the listed connections.
    pub fn take_dirty(&mut self, into: &mut Vec<usize>) {
        into.clear();
        std::mem::swap(&mut self.dirty, into);
        for &place in into.iter() {
            self.peers[place].is_dirty = false;
        }
    }

    /// Handles received bytes.
    pub fn receive(&mut self, place: usize, bytes: &[u8]) {
        self.counts.receives += 1;
        let mut rest = std::mem::take(&mut self.peers[place].rest);
        if rest.is_empty() {
            let used = self.forward(place, bytes);
            rest.extend_from_slice(&bytes[used..]);
        } else {
            rest.extend_from_slice(bytes);
            let used = self.forward(place, &rest);
            rest.drain(..used);
        }
        self.peers[place].rest = rest;
    }

    /// Forwards what is complete; returns its length.
    fn forward(&mut self, place: usize, bytes: &[u8]) -> usize {
        let mut used = 0;
        if place < self.servers {
            while let Some(end) = memmem::find(&bytes[used..], REPLY_END) {
                let reply = &bytes[used..used + end + REPLY_END.len()];
                used += reply.len();
                self.reply(place, reply);
            }
        } else {
            while let Some(end) = memchr(b'\n', &bytes[used..]) {
                let line = &bytes[used..=used + end];
                used += line.len();
                self.request(place, line);
            }
        }
        used
    }

    fn request(&mut self, place: usize, line: &[u8]) {
        if line == COUNTS {
            let Counts { turns, receives, sends } = self.counts;
            self.peers[place].output.extend_from_slice(format!("{turns} {receives} {sends}\r\n").as_bytes());
            return self.mark_dirty(place);
        }
        burn(self.work);
        let hash = line
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let server = ((hash >> 32) % self.servers as u64) as usize;
        let client = &mut self.peers[place];
        let number = client.first + client.replies.len() as u64;
        client.replies.push_back(None);
        self.peers[server].in_flight.push_back((place, number));
        self.peers[server].output.extend_from_slice(line);
        self.mark_dirty(server);
    }

    fn reply(&mut self, server: usize, reply: &[u8]) {
        burn(self.work);
        let Some((place, number)) = self.peers[server].in_flight.pop_front() else { return };
        let client = &mut self.peers[place];
        let index = (number - client.first) as usize;
        if index > 0 {
            client.replies[index] = Some(reply.to_vec());
            return;
        }
        client.output.extend_from_slice(reply);
        client.replies.pop_front();
        client.first += 1;
        while let Some(Some(next)) = client.replies.front() {
            client.output.extend_from_slice(next);
            client.replies.pop_front();
            client.first += 1;
        }
        self.mark_dirty(place);
    }
}

fn burn(rounds: u32) {
    let mut value = 1_u64;
    for _ in 0..rounds {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
