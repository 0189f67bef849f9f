//! A client of the simulation. It pipelines, sends tiny pieces, stops reading or disconnects, and checks every byte that it receives.

use super::random::Random;
use super::simulated_judge::{Judge, SentRequest};
use super::simulated_opening::Opening;
use super::simulated_requests::{Ask, list_key, next, own_keys, shared_keys};
use clock::{Clock, Nanos};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;
use wire::Verb;

/// How a client disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disconnect {
    /// It sends `quit`, and waits for the end.
    Quit,
    /// It half-closes before it has read the last reply.
    HalfClosed,
    /// It disconnects when all requests are answered.
    Closed,
    /// It disconnects with requests in flight.
    Vanished,
    /// It sends nothing more, until the proxy closes the connection.
    Idle,
    /// It stops within a request, until the proxy closes the connection.
    Unfinished,
}

/// The plan of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) number: usize,
    pub(crate) requests: usize,
    pub(crate) burst: usize,
    pub(crate) disconnect: Disconnect,
    /// How long it does not read, now and then.
    pub(crate) pause: Option<Duration>,
    /// Whether it also stores large values.
    pub(crate) has_large: bool,
    pub(crate) may_flush: bool,
    pub(crate) opening: Opening,
    /// After this time without a byte, the proxy closes the connection.
    pub(crate) client_timeout: Option<Duration>,
    /// The length of values that the proxy refuses.
    pub(crate) refused_bytes: Option<usize>,
}

/// The outcomes of its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) vanished: u64,
    /// Requests that the near-cache has answered.
    pub(crate) near_cache_hits: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.failed += other.failed;
        self.vanished += other.vanished;
        self.near_cache_hits += other.near_cache_hits;
    }
}

pub(crate) struct SimulatedClient {
    stream: TcpStream,
    random: Random,
    plan: Plan,
    judge: Judge,
    in_flight: VecDeque<SentRequest>,
    clock: Clock,
    /// The time when the client last sent or received bytes or noticed the end of the connection, and the longest interval between
    /// two such times.
    active: Nanos,
    longest_gap: Duration,
    /// The time when the client last sent bytes.
    asked: Nanos,
    /// The number of requests before the last time in which it sent none for so long that the proxy may have closed the connection.
    sent_before_silence: Option<u64>,
    /// The number of requests up to the last one that has a reply.
    heard: u64,
    /// The proxy has closed the connection, or it broke.
    is_closed: bool,
    got: Vec<u8>,
    /// The last requests and replies.
    trail: VecDeque<String>,
    tally: Tally,
}

const TRAIL: usize = 60;
/// The number of requests in flight that a failure shows.
const NEXT: usize = 5;
/// The number of waits after which a reply is missing. They are counted, not timed, because a machine may be suspended.
const WAITS_MAX: usize = 300;
const WAIT: Duration = Duration::from_millis(100);
/// The number of attempts until a request must succeed.
const TRIES_MAX: usize = 1000;

impl SimulatedClient {
    pub(crate) fn new(address: SocketAddr, plan: Plan, judge: Judge, seed: u64) -> SimulatedClient {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(WAIT)).unwrap();
        stream.set_write_timeout(Some(WAIT * WAITS_MAX as u32)).unwrap();
        plan.opening.begin(&mut stream, &mut Random(!seed));
        let clock = Clock::monotonic();
        SimulatedClient {
            stream,
            active: clock.now(),
            asked: clock.now(),
            clock,
            longest_gap: Duration::ZERO,
            sent_before_silence: None,
            heard: 0,
            is_closed: false,
            random: Random(seed),
            plan,
            judge,
            in_flight: VecDeque::new(),
            got: Vec::new(),
            trail: VecDeque::new(),
            tally: Tally::default(),
        }
    }

    /// Executes the plan. Returns the outcomes, and what the client knows.
    ///
    /// # Errors
    /// The first violation of a guarantee.
    pub(crate) fn run(mut self) -> Result<(Tally, Judge), String> {
        match self.send_requests() {
            Err(_) if self.was_idle_too_long() => self.vanish(),
            outcome => outcome?,
        }
        Ok((self.tally, self.judge))
    }

    fn send_requests(&mut self) -> Result<(), String> {
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
            if let Some(pause) = self.plan.pause.filter(|_| self.random.one_in(5)) {
                std::thread::sleep(pause);
            }
            let failed = self.tally.failed;
            let keep = self.random.below(burst);
            self.read_until(keep)?;
            if self.tally.failed > failed {
                // Otherwise all requests would be sent while a backend is unreachable.
                std::thread::sleep(Duration::from_micros(self.random.next() % 30_000));
            }
        }
        self.disconnect()
    }

    /// Whether the proxy closed the connection rightly, because this client sent and received nothing for too long. This happens
    /// if a busy machine does not run it.
    fn was_idle_too_long(&self) -> bool {
        let had_gap = self.longest_gap >= self.silence_min();
        self.is_closed && (had_gap || self.was_silent_too_long())
    }

    /// Whether the proxy closed the connection rightly although this client was still reading: the kernel had taken large replies at
    /// once, so the proxy had nothing left to do for too long. Then all earlier requests have replies, and no later one has.
    fn was_silent_too_long(&self) -> bool {
        let answered = self.tally.answered + self.tally.failed;
        let has_all_before = |before| self.heard <= before && before <= answered;
        self.got.is_empty() && self.sent_before_silence.is_some_and(has_all_before)
    }

    /// After so long, the proxy may have closed the connection: the two measure from different moments.
    fn silence_min(&self) -> Duration {
        self.plan.client_timeout.map_or(Duration::MAX, |timeout| timeout / 2)
    }

    /// The requests in flight have no reply. The proxy need not have read them, nor those with `noreply` just before them.
    fn vanish(&mut self) {
        self.tally.vanished = self.tally.sent - self.heard;
        self.in_flight.drain(..).for_each(|request| self.judge.failed(&request));
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.note_activity();
        let outcome = self.stream.write_all(bytes);
        self.asked = self.clock.now();
        outcome.map_err(|error| {
            self.is_closed = true;
            self.note_activity();
            format!("{error} while sending")
        })
    }

    fn note_activity(&mut self) {
        let now = self.clock.now();
        self.longest_gap = self.longest_gap.max(now.after(self.active));
        self.active = now;
    }

    /// After all faults have ended: reads all keys, and writes its own once more. All requests must succeed now, and
    /// reads must return current values.
    ///
    /// # Errors
    /// The first violation of a guarantee.
    pub(crate) fn check_final_values(mut self) -> Result<Tally, String> {
        let client = self.plan.number;
        let promises = self.judge.promises.clone();
        self.judge.promises = promises.clone().without_late_replicas();
        for key in own_keys(client).chain(shared_keys()).chain([list_key(client)]) {
            self.insist(|_| Ask::Get { verb: Verb::Get, keys: vec![key.clone()] })?;
        }
        self.judge.promises = promises;
        for key in own_keys(client) {
            self.insist(|version| Ask::Set { key: key.clone(), version, is_noreply: false })?;
            self.insist(|opaque| Ask::MetaGet {
                key: key.clone(),
                opaque,
                is_quiet: false,
                touches: false,
                wants_token: true,
            })?;
        }
        Ok(self.tally)
    }

    /// Repeats a request until it succeeds.
    fn insist(&mut self, ask: impl Fn(u64) -> Ask) -> Result<(), String> {
        for _ in 0..TRIES_MAX {
            let failed = self.tally.failed;
            let ask = ask(self.judge.next_number());
            let mut bytes = Vec::new();
            self.ask(ask, &mut bytes);
            self.send(&bytes)?;
            self.read_until(0)?;
            if self.tally.failed == failed {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("client {}: {:?} still fails although no backend has a fault", self.plan.number, self.trail.back()))
    }

    fn disconnect(&mut self) -> Result<(), String> {
        match self.plan.disconnect {
            Disconnect::Vanished => {
                self.vanish();
                return Ok(());
            }
            Disconnect::HalfClosed => self.stream.shutdown(Shutdown::Write).map_err(|error| format!("{error}"))?,
            Disconnect::Quit => {
                self.send(b"quit\r\nget never\r\n")?;
                self.tally.sent += 1;
            }
            Disconnect::Unfinished => self.send(b"set never 0 0 100\r\nhalf a value")?,
            Disconnect::Closed | Disconnect::Idle => {}
        }
        self.read_until(0)?;
        if self.plan.disconnect != Disconnect::Closed {
            let mut rest = self.got.clone();
            let mut buffer = vec![0; 1 << 12];
            // The proxy may have closed with unread input.
            loop {
                match read_some(&mut self.stream, &mut buffer) {
                    Ok(count @ 1..) => rest.extend_from_slice(&buffer[..count]),
                    Err(error) if is_worth_waiting(&error) => return Err("the connection stays open".into()),
                    _ => break,
                }
            }
            if !rest.is_empty() {
                return Err(format!("{:?} after the last reply", String::from_utf8_lossy(&rest)));
            }
        }
        Ok(())
    }

    /// Appends a request.
    fn ask(&mut self, ask: Ask, bytes: &mut Vec<u8>) {
        let request = self.judge.sends(ask);
        request.ask.encode(self.plan.number, bytes);
        self.in_flight.push_back(request);
        self.tally.sent += 1;
    }

    fn send_burst(&mut self, count: usize) -> Result<(), String> {
        if self.clock.now().after(self.asked) >= self.silence_min() {
            self.sent_before_silence = Some(self.tally.sent);
        }
        let mut bytes = Vec::new();
        for _ in 0..count {
            for ask in next(&self.plan, self.judge.next_number(), &mut self.random) {
                self.ask(ask, &mut bytes);
            }
        }
        let dribbles = self.random.one_in(8) && bytes.len() < 4000;
        let largest = if dribbles { 1 + self.random.below(40) } else { bytes.len() };
        for piece in bytes.chunks(largest) {
            self.send(piece)?;
            if dribbles && self.random.one_in(4) {
                std::thread::sleep(Duration::from_micros(self.random.next() % 300));
            }
        }
        Ok(())
    }

    /// Reads and checks replies until at most this many are missing.
    fn read_until(&mut self, missing: usize) -> Result<(), String> {
        let mut buffer = vec![0; 1 << 16];
        loop {
            self.check_received()?;
            if self.in_flight.len() <= missing {
                return Ok(());
            }
            let waiting =
                || format!("{} replies missing, first that to {:?}", self.in_flight.len(), self.in_flight[0].ask);
            match read_some(&mut self.stream, &mut buffer) {
                Ok(count @ 1..) => self.got.extend_from_slice(&buffer[..count]),
                outcome => {
                    self.is_closed = !matches!(&outcome, Err(error) if is_worth_waiting(error));
                    let what = outcome.map_or_else(|error| error.to_string(), |_| "closed".into());
                    let what = format!("{what} with {}", waiting());
                    self.note_activity();
                    return Err(what);
                }
            }
            self.note_activity();
        }
    }

    fn check_received(&mut self) -> Result<(), String> {
        let mut used = 0;
        while let Some(request) = self.in_flight.front() {
            let rest = &self.got[used..];
            let received = || String::from_utf8_lossy(&rest[..rest.len().min(60)]).into_owned();
            let outcome = self.judge.check(request, rest).map_err(|what| {
                let trail: String = self.trail.iter().map(|line| format!("\n    {line}")).collect();
                let next: Vec<&Ask> = self.in_flight.iter().skip(1).take(NEXT).map(|request| &request.ask).collect();
                let number = self.plan.number;
                format!(
                    "client {number}: {what}\n  sent {request:?}\n  then {next:?}\n  got {:?} after{trail}",
                    received()
                )
            })?;
            let Some((consumed, is_failed)) = outcome else { break };
            self.trail.push_back(format!("{:?}: {:?}", request.ask, received()));
            if self.trail.len() > TRAIL {
                self.trail.pop_front();
            }
            used += consumed;
            self.tally.failed += u64::from(is_failed);
            self.tally.answered += u64::from(!is_failed);
            if consumed > 0 {
                self.heard = self.tally.answered + self.tally.failed;
            }
            self.in_flight.pop_front();
        }
        self.got.drain(..used);
        Ok(())
    }
}

/// Reads, and waits if nothing has arrived.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    let mut waits = 0;
    loop {
        match stream.read(buffer) {
            Err(error) if waits < WAITS_MAX && is_worth_waiting(&error) => waits += 1,
            outcome => return outcome,
        }
    }
}

/// Whether nothing has arrived yet, or a suspended machine has interrupted the wait.
fn is_worth_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
