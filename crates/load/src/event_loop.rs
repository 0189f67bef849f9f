//! One thread: waits for replies and for clients that are done thinking, and lets each client do its part.
//!
//! epoll waits in whole milliseconds. While the next client is done thinking within about a millisecond the loop
//! therefore polls without waiting, which is exact and costs processor time; the summary's `cpu.share` shows it.

use crate::LoadError;
use crate::client::{CONNECT_TIMEOUT, Client, Link, Lost};
use crate::tally::Tally;
use crate::worker::Worker;
use clock::Nanos;
use net::{Connection, Poller, Ready, Token};
use std::time::Duration;

/// How often the loop looks after time limits, lost connections and the passing of seconds.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
/// The kernel wakes a sleeper up to this much late; a wait ends so much before the next client is done thinking.
const WAKE_UP_LATENESS: Duration = Duration::from_micros(100);

/// The clients of one thread.
#[derive(Debug)]
pub(crate) struct EventLoop<'a> {
    worker: Worker<'a>,
    clients: Vec<Client>,
    poller: Poller,
    /// Clients whose last turn ended before everything was read.
    unfinished: Vec<usize>,
    /// Clients that were done thinking in this turn; kept for its memory.
    woken: Vec<usize>,
    next_housekeeping: Nanos,
}

/// What a thread hands back.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) tally: Tally,
    /// Requests issued that never ended.
    pub(crate) lost: u64,
}

impl<'a> EventLoop<'a> {
    /// A loop over connected clients.
    pub(crate) fn new(worker: Worker<'a>, mut clients: Vec<Client>) -> Result<EventLoop<'a>, LoadError> {
        let poller = Poller::new().map_err(LoadError::Poller)?;
        for (number, client) in clients.iter_mut().enumerate() {
            client.line.client = number;
            if let Link::Up(connection) = &mut client.link {
                poller.add(connection, Token(number)).map_err(LoadError::Poller)?;
            }
        }
        Ok(EventLoop {
            worker,
            clients,
            poller,
            unfinished: Vec::new(),
            woken: Vec::new(),
            next_housekeeping: Nanos::UNSET,
        })
    }

    /// Runs until the plan is over and every request has ended.
    pub(crate) fn run(mut self) -> Result<Finished, LoadError> {
        let mut ready = Vec::new();
        self.begin();
        loop {
            let now = self.worker.now();
            let is_over = self.worker.shared.plan.is_over(now);
            if now >= self.next_housekeeping {
                self.keep_house(now, is_over)?;
            }
            if is_over && self.clients.iter().all(Client::is_idle) {
                break;
            }
            if !is_over {
                self.wake_thinkers(now);
            }
            let timeout = self.timeout(is_over);
            self.poller.wait(Some(timeout), &mut ready).map_err(LoadError::Poller)?;
            self.serve(&ready);
        }
        let (tally, lost) = self.worker.close();
        Ok(Finished { tally, lost })
    }

    /// Every client fills its window; with a think time it thinks first.
    fn begin(&mut self) {
        let now = self.worker.now();
        for number in 0..self.clients.len() {
            for _ in 0..self.worker.shared.config.pipeline {
                match self.worker.schedule.first_think_ns() {
                    0 => self.clients[number].ready.push_back(now),
                    think_ns => self.worker.think_until(now + Duration::from_nanos(think_ns), number),
                }
            }
            self.pump(number);
        }
    }

    /// Lets every client that is done thinking issue its requests, those of one client in one write.
    fn wake_thinkers(&mut self, now: Nanos) {
        let mut woken = std::mem::take(&mut self.woken);
        while let Some((due, number)) = self.worker.next_awake(now) {
            self.clients[number].ready.push_back(due);
            woken.push(number);
        }
        // A client that was woken twice has nothing left to write the second time.
        woken.drain(..).for_each(|number| self.pump(number));
        self.woken = woken;
    }

    /// How long the loop may wait.
    fn timeout(&self, is_over: bool) -> Duration {
        if !self.unfinished.is_empty() {
            return Duration::ZERO;
        }
        match self.worker.next_due().filter(|_| !is_over) {
            None => HOUSEKEEPING,
            Some(due) => {
                let left = due.after(self.worker.now()).saturating_sub(WAKE_UP_LATENESS).min(HOUSEKEEPING);
                Duration::from_millis(left.as_millis() as u64)
            }
        }
    }

    /// Reads what has come, refills the windows, writes.
    fn serve(&mut self, ready: &[Ready]) {
        let mut again = std::mem::take(&mut self.unfinished);
        for number in again.drain(..) {
            self.turn(number);
        }
        for event in ready {
            let number = event.token.0;
            match &mut self.clients[number].link {
                Link::Up(connection) => connection.on_ready(event.readable, event.writable, event.closing),
                Link::Connecting(connection, _) => {
                    connection.on_ready(event.readable, event.writable, event.closing);
                    if connection.connect_error().is_some() {
                        self.lose(number, Lost::Closed);
                    } else if event.writable && connection.peer_address().is_some() {
                        self.clients[number].is_connected(&self.worker);
                    }
                }
                Link::Down(_) => {}
            }
            if !self.unfinished.contains(&number) {
                self.turn(number);
            }
        }
    }

    /// One client's turn: its replies, then its next requests.
    fn turn(&mut self, number: usize) {
        match self.clients[number].receive(&mut self.worker) {
            Ok(false) => {}
            Ok(true) => self.unfinished.push(number),
            Err(lost) => return self.lose(number, lost),
        }
        self.pump(number);
    }

    fn pump(&mut self, number: usize) {
        if let Err(lost) = self.clients[number].pump(&mut self.worker) {
            self.lose(number, lost);
        }
    }

    fn lose(&mut self, number: usize, lost: Lost) {
        let now = self.worker.now();
        self.clients[number].lose(&mut self.worker, lost, now);
    }

    /// Gives up replies that do not come, makes lost connections again, hands over what has gathered.
    fn keep_house(&mut self, now: Nanos, is_over: bool) -> Result<(), LoadError> {
        self.next_housekeeping = now + HOUSEKEEPING;
        self.worker.roll(now);
        self.worker.flush_records();
        let patience = self.worker.shared.config.reply_timeout;
        for number in 0..self.clients.len() {
            let client = &self.clients[number];
            match client.link {
                Link::Up(_) if client.oldest_issued().is_some_and(|issued| issued + patience <= now) => {
                    self.lose(number, Lost::Timeout);
                }
                Link::Connecting(_, give_up_at) if give_up_at <= now => self.lose(number, Lost::Closed),
                Link::Down(retry_at) if retry_at <= now && !is_over => self.reconnect(number, now)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn reconnect(&mut self, number: usize, now: Nanos) -> Result<(), LoadError> {
        match Connection::connect(self.clients[number].address) {
            Ok(mut connection) => {
                self.poller.add(&mut connection, Token(number)).map_err(LoadError::Poller)?;
                self.clients[number].link = Link::Connecting(connection, now + CONNECT_TIMEOUT);
            }
            Err(_) => self.lose(number, Lost::Closed),
        }
        Ok(())
    }
}
