//! Step 1: the event loop of one thread. It waits for replies, think times and arrivals, and lets each client send
//! and receive.
//!
//! The loop polls without sleeping for requests that are due within [`NEAR`], because falling asleep and waking up
//! would take as long. With `spin` it never sleeps.

use crate::LoadError;
use crate::drive::client::Client;
use crate::drive::connection::{CONNECT_TIMEOUT, Disconnect, LaneState};
use crate::drive::lane::Lane;
use crate::drive::worker::Worker;
use crate::measure::tally::Tally;
use clock::Nanos;
use net::{Connection, Flushed, Poller, Ready, Timer, Token};
use std::time::Duration;

/// The interval at which the loop checks timeouts, lost connections and the passing of seconds.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
/// The loop sets the timer only for times further away than this.
const NEAR: Duration = Duration::from_micros(20);
/// The timer's token; connections are numbered from 0.
const TIMER: Token = Token(usize::MAX);

/// The clients and connections of one thread.
#[derive(Debug)]
pub(crate) struct EventLoop<'a> {
    worker: Worker<'a>,
    clients: Vec<Client>,
    lanes: Vec<Lane>,
    poller: Poller,
    timer: Timer,
    /// Lanes that used up their turn before everything was read.
    unfinished: Vec<usize>,
    /// Clients that have something to issue. The vector is reused.
    woken: Vec<usize>,
    next_housekeeping: Nanos,
    /// The time of the next request, if it is known.
    next_due: Option<Nanos>,
}

/// The result of one thread.
#[derive(Debug)]
pub(crate) struct ThreadResult {
    pub(crate) tally: Tally,
    /// Requests that were issued and never ended. More than none is a bug.
    pub(crate) lost: u64,
    /// Queues that clients created and did not delete.
    pub(crate) own_queues: Vec<String>,
}

impl<'a> EventLoop<'a> {
    /// Creates a loop over connected clients. `lanes` contains the connections of the first client, then those of the
    /// second, and so on.
    pub(crate) fn new(worker: Worker<'a>, mut lanes: Vec<Lane>) -> Result<EventLoop<'a>, LoadError> {
        let poller = Poller::new().map_err(LoadError::Poller)?;
        let timer = Timer::new().map_err(LoadError::Poller)?;
        poller.add_timer(&timer, TIMER).map_err(LoadError::Poller)?;
        let each = worker.context.config.lanes_per_client();
        for (number, lane) in lanes.iter_mut().enumerate() {
            lane.id.client = number / each;
            if let LaneState::Up(connection) = &mut lane.state {
                poller.add_reading(connection, Token(number)).map_err(LoadError::Poller)?;
            }
        }
        let clients = (0..lanes.len() / each).map(|number| Client::new(number, number * each..(number + 1) * each));
        Ok(EventLoop {
            worker,
            clients: clients.collect(),
            lanes,
            poller,
            timer,
            unfinished: Vec::new(),
            woken: Vec::new(),
            next_housekeeping: Nanos::UNSET,
            next_due: None,
        })
    }

    /// Runs until the plan is over and every request has ended.
    pub(crate) fn run(mut self) -> Result<ThreadResult, LoadError> {
        let mut ready = Vec::new();
        self.begin();
        let mut polled_at = None;
        loop {
            let now = self.worker.now();
            if let Some(polled_at) = polled_at {
                self.worker.polled(polled_at, now);
            }
            let is_over = self.worker.is_over(now);
            if now >= self.next_housekeeping {
                self.housekeeping(now, is_over)?;
            }
            if is_over && self.lanes.iter().all(|lane| lane.window.is_empty()) {
                break;
            }
            if !is_over {
                self.take_due(now);
            }
            let is_idle = self.woken.is_empty() && self.unfinished.is_empty();
            self.pump_woken();
            if self.next_due.is_none() && !is_over {
                // Requests without a reply end when they are sent, so their clients are free again.
                self.take_due(self.worker.now());
            }
            let timeout = self.timeout(is_over)?;
            self.poller.wait(Some(timeout), &mut ready).map_err(LoadError::Poller)?;
            polled_at = (is_idle && timeout.is_zero() && ready.is_empty()).then_some(now);
            self.serve(&ready);
        }
        let (tally, lost, own_queues) = self.worker.close();
        Ok(ThreadResult { tally, lost, own_queues })
    }

    /// Starts the clients. In a closed loop every client fills its window after its think time; in an open loop all
    /// clients are free.
    fn begin(&mut self) {
        let now = self.worker.now();
        for _ in 0..self.worker.context.config.pipeline {
            for number in 0..self.clients.len() {
                self.worker.begin(number, &mut self.clients[number].ready, now);
            }
        }
        self.woken.extend(0..self.clients.len());
    }

    /// Gives every request that is due to its client.
    fn take_due(&mut self, now: Nanos) {
        let each = self.worker.context.config.lanes_per_client();
        let lanes = &self.lanes;
        // A client with several servers keeps sending to those that are connected.
        let can_issue = |number: usize| each > 1 || lanes[number].is_up();
        let (clients, woken) = (&mut self.clients, &mut self.woken);
        self.next_due = self.worker.take_due(now, can_issue, |client, intended, row| {
            clients[client].take(intended, row);
            woken.push(client);
        });
    }

    /// Lets every woken client issue its requests. All requests of a client on one connection go out in one write.
    fn pump_woken(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        // A client that was woken twice has nothing left to write the second time.
        woken.drain(..).for_each(|number| self.pump(number));
        // Requests without a reply end at once, so their clients are woken again.
        woken.append(&mut self.woken);
        self.woken = woken;
    }

    /// How long the loop may wait. Sets the timer if the wait is shorter than the poller's timeout can express.
    fn timeout(&mut self, is_over: bool) -> Result<Duration, LoadError> {
        if self.worker.context.config.spin || !self.unfinished.is_empty() || !self.woken.is_empty() {
            return Ok(Duration::ZERO);
        }
        let Some(due) = self.next_due.filter(|_| !is_over) else {
            return Ok(HOUSEKEEPING);
        };
        let left = due.after(self.worker.now());
        if left <= NEAR {
            return Ok(Duration::ZERO);
        }
        if left < HOUSEKEEPING {
            self.timer.set(due.0).map_err(LoadError::Poller)?;
        }
        Ok(HOUSEKEEPING)
    }

    /// Reads replies, refills the windows and writes.
    fn serve(&mut self, ready: &[Ready]) {
        let mut again = std::mem::take(&mut self.unfinished);
        for number in again.drain(..) {
            self.turn(number);
        }
        for event in ready.iter().filter(|event| event.token != TIMER) {
            let number = event.token.0;
            match &mut self.lanes[number].state {
                LaneState::Up(connection) => connection.on_ready(event.readable, event.writable, event.closing),
                LaneState::Connecting(connection, _) => {
                    connection.on_ready(event.readable, event.writable, event.closing);
                    if connection.connect_error().is_some() {
                        self.disconnect(number, Disconnect::Closed);
                    } else if event.writable && connection.peer_address().is_some() {
                        self.lanes[number].is_connected(&self.worker);
                        self.worker.reconnected(self.lanes[number].id.client);
                    }
                }
                LaneState::Down(_) => {}
            }
            if !self.unfinished.contains(&number) {
                self.turn(number);
            }
        }
    }

    /// One lane's turn: its replies, then its client's next requests.
    fn turn(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        let client = lane.id.client;
        match lane.receive(&mut self.worker, &mut self.clients[client]) {
            Ok(false) => {}
            Ok(true) => self.unfinished.push(number),
            Err(cause) => return self.disconnect(number, cause),
        }
        self.pump(client);
    }

    /// Lets a client issue its requests, and writes them.
    fn pump(&mut self, number: usize) {
        let client = &mut self.clients[number];
        let lanes = client.lanes.clone();
        client.issue(&mut self.worker, &mut self.lanes[lanes.clone()]);
        let mut is_written = true;
        for at in lanes {
            let lane = &mut self.lanes[at];
            match lane.flush(&mut self.worker, &mut self.clients[number]) {
                Ok(Flushed::All) => is_written &= lane.is_up(),
                Ok(Flushed::Blocked) => {
                    is_written = false;
                    self.wait_for_room(at);
                }
                Err(cause) => self.disconnect(at, cause),
            }
        }
        if is_written && !self.clients[number].ready.is_empty() {
            self.woken.push(number);
        }
    }

    /// Asks the poller for an event when the lane can be written to again.
    fn wait_for_room(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        if let LaneState::Up(connection) = &mut lane.state
            && !lane.waits_for_room
        {
            lane.waits_for_room = true;
            if self.poller.rename(connection, Token(number)).is_err() {
                self.disconnect(number, Disconnect::Closed);
            }
        }
    }

    fn disconnect(&mut self, number: usize, cause: Disconnect) {
        let now = self.worker.now();
        let lane = &mut self.lanes[number];
        lane.disconnect(&mut self.worker, &mut self.clients[lane.id.client], cause, now);
    }

    /// Fails requests whose reply timed out, reconnects lost connections and hands over counts and records.
    fn housekeeping(&mut self, now: Nanos, is_over: bool) -> Result<(), LoadError> {
        self.next_housekeeping = now + HOUSEKEEPING;
        self.worker.roll(now);
        self.worker.flush_records();
        let timeout = self.worker.context.config.reply_timeout;
        for number in 0..self.lanes.len() {
            let lane = &self.lanes[number];
            match lane.state {
                LaneState::Up(_) if lane.window.oldest_issued().is_some_and(|issued| issued + timeout <= now) => {
                    self.disconnect(number, Disconnect::Timeout);
                }
                LaneState::Connecting(_, give_up_at) if give_up_at <= now => {
                    self.disconnect(number, Disconnect::Closed)
                }
                LaneState::Down(retry_at) if retry_at <= now && !is_over => self.reconnect(number, now)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn reconnect(&mut self, number: usize, now: Nanos) -> Result<(), LoadError> {
        match Connection::connect(self.lanes[number].address) {
            Ok(mut connection) => {
                self.poller.add(&mut connection, Token(number)).map_err(LoadError::Poller)?;
                self.lanes[number].state = LaneState::Connecting(connection, now + CONNECT_TIMEOUT);
            }
            Err(_) => self.disconnect(number, Disconnect::Closed),
        }
        Ok(())
    }
}
