//! The controller's connection to one agent. A thread reads the agent's messages and stamps their arrival. Knows no
//! order of messages.

use crate::LoadError;
use crate::agents::message::{FROM_AGENT_BYTES_MAX, FromAgent, LineError, LineReader, ToAgent, parse, write};
use crate::agents::session::{POLL_INTERVAL, SILENCE_TIMEOUT, WRITE_TIMEOUT};
use crate::report::summary::Summary;
use clock::{Clock, Nanos, duration_ns};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::Sender;
use std::thread::{self, Scope};
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The events that a controller waits for.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message arrived from an agent.
    Received { agent: usize, at: Nanos, message: FromAgent },
    /// The connection to an agent is lost, for this reason.
    Lost { agent: usize, why: String },
    /// The local measuring client is connected.
    MeasuringPrepared,
    /// The local measuring client has finished.
    MeasuringDone(Result<Box<Summary>, String>),
}

/// A connection to an agent, which is closed on drop.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    stream: TcpStream,
}

impl AgentConnection {
    /// Connects to agent number `agent`, and starts the thread that reads from it.
    pub(crate) fn connect<'scope>(
        agent: usize,
        name: &str,
        clock: &'scope Clock,
        events: Sender<Event>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<AgentConnection, LoadError> {
        let failed = |line: String| LoadError::Agent { agent: name.into(), line };
        let address = net::resolve(name).map_err(|error| failed(error.to_string()))?;
        let connected = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(POLL_INTERVAL))?;
            stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
            let reading = stream.try_clone()?;
            Ok((AgentConnection { stream }, reading))
        });
        let (link, reading) = connected
            .map_err(|error| failed(format!("cannot connect: {error}; is `waystage load agent` running there?")))?;
        thread::Builder::new()
            .name(format!("agent-{agent}"))
            .spawn_scoped(scope, move || read(agent, &reading, clock, &events))
            .map_err(LoadError::Thread)?;
        Ok(link)
    }

    /// Sends a message. If it cannot be delivered, the reading thread reports that the agent is lost.
    pub(crate) fn send_message(&self, message: &ToAgent) -> io::Result<()> {
        write(&mut &self.stream, message)
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reads until the agent or the controller has gone.
fn read(agent: usize, stream: &TcpStream, clock: &Clock, events: &Sender<Event>) {
    let mut lines = LineReader::new(stream, FROM_AGENT_BYTES_MAX);
    let mut last_heard = clock.now();
    let why = loop {
        let line = lines.next();
        let at = clock.now();
        match line {
            Ok(line) => match parse(&line) {
                Ok(message) => {
                    last_heard = at;
                    if events.send(Event::Received { agent, at, message }).is_err() {
                        return;
                    }
                }
                Err(line) => break format!("{line}; is it `waystage load agent`?"),
            },
            Err(LineError::TimedOut) if at.since(last_heard) < duration_ns(SILENCE_TIMEOUT) => {}
            Err(LineError::TimedOut) => break format!("no message arrived for {SILENCE_TIMEOUT:?}"),
            Err(LineError::Closed) => break "it closed the connection".into(),
            Err(LineError::Broken(line)) => break line,
        }
    };
    let _ = events.send(Event::Lost { agent, why });
}
