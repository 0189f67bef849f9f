//! The thread that sends spans, and its orderly end.

use crate::config::Config;
use crate::control::threads::Worker;
use crate::observe::ended_request::EndedRequest;
use crate::observe::tally::Tally;
use crate::observe::traces::sampler::TraceQueue;
use clock::Clock;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long a collector can delay the exit of the proxy.
const END_WAIT: Duration = Duration::from_secs(3);

/// The tracing of one configuration.
#[derive(Debug)]
pub(crate) struct Traces {
    pub(crate) queue: TraceQueue,
    thread: Worker<()>,
    /// The thread sends what is left, and ends, when this is dropped.
    stop: SyncSender<()>,
    /// Disconnected when the thread has ended.
    ended: Mutex<Receiver<()>>,
}

/// What is given to the thread: the requests, and the notice that the proxy has stopped.
type Inputs = (Receiver<Box<EndedRequest>>, Receiver<()>);

impl Traces {
    /// The tracing, whose thread has not begun. None if nothing is traced.
    pub(crate) fn prepare(config: &Config, tally: &Tally, clock: &Clock) -> io::Result<Option<Traces>> {
        let Some(traces) = &config.traces else { return Ok(None) };
        let (queue, requests) = TraceQueue::new(traces.queue, tally.traces.clone());
        let (stop, stopped) = sync_channel(0);
        let work = exporter(config, (requests, stopped), tally, clock)?;
        let (sender, ended) = sync_channel(1);
        let thread = Worker::prepare("traces", move || {
            work();
            drop(sender);
            Ok(())
        })?;
        Ok(Some(Traces { queue, thread, stop, ended: Mutex::new(ended) }))
    }

    /// Lets the thread begin.
    pub(crate) fn begin(&mut self) {
        self.thread.begin();
    }

    /// Ends the thread when it has sent all spans. The loops must have ended. A collector that takes too long is given up.
    pub(crate) fn end(self) {
        let Traces { queue, thread, stop, ended } = self;
        let counters = queue.counters();
        drop((queue, stop));
        let ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
        if ended.recv_timeout(END_WAIT) == Err(RecvTimeoutError::Disconnected) {
            // A panic of the thread does not fail the proxy's orderly end.
            let _ = thread.join();
        }
        counters.close();
    }
}

/// The work of the thread.
#[cfg(feature = "otlp")]
fn exporter(config: &Config, inputs: Inputs, tally: &Tally, clock: &Clock) -> io::Result<impl FnOnce() + use<>> {
    use crate::config::{PoolConfig, ServerConfig};
    use crate::observe::traces::exporter::Exporter;
    use crate::observe::traces::spans::TracedBackend;
    use net::Address;

    let backend = |(pool, server): (&PoolConfig, &ServerConfig)| {
        let address = server.address.parse::<Address>().map_err(io::Error::other)?;
        let (host, port) = match &address {
            Address::Tcp(host_port) | Address::Tls(host_port) => (host_port.host().into(), Some(host_port.port())),
            Address::Unix(path) => (path.display().to_string(), None),
        };
        Ok(TracedBackend { pool: pool.name.clone(), host, port })
    };
    let backends = config.backends().map(backend).collect::<io::Result<_>>()?;
    let Some(traces) = &config.traces else { return Err(io::Error::other("nothing is traced")) };
    let lookup = config.transport.lookup.clone();
    let exporter = Exporter::new(traces, lookup, backends, inputs, tally.traces.clone(), clock.clone())?;
    Ok(move || exporter.run())
}

/// Without the feature there is none, and `Config::check` refuses `traces`.
#[cfg(not(feature = "otlp"))]
fn exporter(_config: &Config, inputs: Inputs, _tally: &Tally, _clock: &Clock) -> io::Result<impl FnOnce() + use<>> {
    Ok(move || drop(inputs))
}
