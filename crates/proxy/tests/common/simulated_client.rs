//! A client of the simulation: it pipelines, dribbles, forgets to read, leaves in the middle; and checks every byte that it gets.

use super::random::Random;
use super::simulated_requests::{Ask, Knowledge};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How a client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// With `quit`, and waits for the end.
    Quit,
    /// It closes its side before it has read what it asked for last.
    HalfClosed,
    /// When all is answered.
    Closed,
    /// With requests under way.
    Vanished,
}

/// What a client does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) number: usize,
    pub(crate) requests: usize,
    pub(crate) burst: usize,
    pub(crate) leaving: Leaving,
    /// Whether reads may be answered by copies, which may be behind.
    pub(crate) reads_copies: bool,
}

/// What became of its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) vanished: u64,
}

pub(crate) struct SimulatedClient {
    stream: TcpStream,
    random: Random,
    plan: Plan,
    known: Knowledge,
    under_way: VecDeque<Ask>,
    got: Vec<u8>,
    tally: Tally,
}

/// Nothing takes longer: a reply that has not come by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

impl SimulatedClient {
    pub(crate) fn new(address: SocketAddr, plan: Plan, seed: u64) -> SimulatedClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        SimulatedClient {
            stream,
            random: Random(seed),
            plan,
            known: Knowledge::new(plan.number, plan.reads_copies),
            under_way: VecDeque::new(),
            got: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Does everything that is planned.
    ///
    /// # Errors
    /// The first thing that no client should see.
    pub(crate) fn run(mut self) -> Result<Tally, String> {
        let mut left = self.plan.requests;
        while left > 0 {
            let burst = (1 + self.random.below(self.plan.burst)).min(left);
            left -= burst;
            self.send_burst(burst)?;
            if left == 0 {
                break;
            }
            if self.random.one_in(10) {
                std::thread::sleep(Duration::from_micros(self.random.next() % 20_000));
            }
            let failed = self.tally.failed;
            let keep = self.random.below(burst);
            self.read_until(keep)?;
            if self.tally.failed > failed {
                // Otherwise everything would be asked while a backend is away.
                std::thread::sleep(Duration::from_micros(self.random.next() % 30_000));
            }
        }
        self.leave()
    }

    fn leave(mut self) -> Result<Tally, String> {
        match self.plan.leaving {
            Leaving::Vanished => {
                self.tally.vanished = self.under_way.len() as u64;
                return Ok(self.tally);
            }
            Leaving::HalfClosed => self.stream.shutdown(Shutdown::Write).map_err(|error| format!("{error}"))?,
            Leaving::Quit => {
                self.stream.write_all(b"quit\r\nget never\r\n").map_err(|error| format!("{error}"))?;
                self.tally.sent += 1;
            }
            Leaving::Closed => {}
        }
        self.read_until(0)?;
        if self.plan.leaving != Leaving::Closed {
            let mut rest = self.got.clone();
            // Whoever closes may have left something unread.
            let _ = self.stream.read_to_end(&mut rest);
            if !rest.is_empty() {
                return Err(format!("{:?} behind the last reply", String::from_utf8_lossy(&rest)));
            }
        }
        Ok(self.tally)
    }

    fn send_burst(&mut self, count: usize) -> Result<(), String> {
        let mut bytes = Vec::new();
        for _ in 0..count {
            for ask in self.known.next(&mut self.random, &mut bytes) {
                self.under_way.push_back(ask);
                self.tally.sent += 1;
            }
        }
        let dribbles = self.random.one_in(8) && bytes.len() < 4000;
        let largest = if dribbles { 1 + self.random.below(40) } else { bytes.len() };
        for piece in bytes.chunks(largest) {
            self.stream.write_all(piece).map_err(|error| format!("{error} while sending"))?;
            if dribbles && self.random.one_in(4) {
                std::thread::sleep(Duration::from_micros(self.random.next() % 300));
            }
        }
        Ok(())
    }

    /// Reads and checks replies until no more than so many are missing.
    fn read_until(&mut self, missing: usize) -> Result<(), String> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.check_what_is_there()?;
            if self.under_way.len() <= missing {
                return Ok(());
            }
            let waiting = || format!("{} replies missing, first that to {:?}", self.under_way.len(), self.under_way[0]);
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(format!("closed with {}", waiting())),
                Ok(count) => self.got.extend_from_slice(&buffer[..count]),
                Err(error) => return Err(format!("{error} with {}", waiting())),
            }
        }
    }

    fn check_what_is_there(&mut self) -> Result<(), String> {
        let mut used = 0;
        while let Some(ask) = self.under_way.front() {
            let rest = &self.got[used..];
            let outcome = self.known.check(ask, rest).map_err(|what| {
                let shown = String::from_utf8_lossy(&rest[..rest.len().min(200)]).into_owned();
                format!("client {}: {what}\n  asked {ask:?}\n  got {shown:?}", self.plan.number)
            })?;
            let Some((consumed, is_failed)) = outcome else { break };
            used += consumed;
            self.tally.failed += u64::from(is_failed);
            self.tally.answered += u64::from(!is_failed);
            self.under_way.pop_front();
        }
        self.got.drain(..used);
        Ok(())
    }
}
