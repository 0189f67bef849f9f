//! An agent: accepts controllers, and does one run after another. Knows no flags and no signals.

use crate::LoadError;
use crate::agents::limits::AgentLimits;
use crate::agents::session::{self, AgentContext};
use crate::config::Config;
use clock::Clock;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Controllers that may be connected at once. All but one receive the reply that the agent is busy.
const CONNECTIONS_MAX: usize = 16;
/// The interval at which the agent polls for connections and checks the stop flag.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A generator that waits for work.
pub struct Agent<'a> {
    /// Accepts controllers.
    listener: TcpListener,
    /// The state that its sessions share.
    context: AgentContext<'a>,
}

impl<'a> Agent<'a> {
    /// Listens on `listen`, HOST:PORT; port 0 picks a free port.
    ///
    /// # Errors If the name does not resolve, if the address is in use or not local, or if it needs a secret and
    /// there is none.
    pub fn bind(
        listen: &str,
        limits: AgentLimits,
        clock: &'a Clock,
        stop: &'a AtomicBool,
        parse: &'a (dyn Fn(&[String]) -> Result<Config, String> + Sync),
        log: &'a (dyn Fn(&str) + Sync),
    ) -> Result<Agent<'a>, LoadError> {
        let failed = |reason: String| LoadError::Listen { listen: listen.into(), reason };
        let address = net::resolve(listen).map_err(|error| failed(error.to_string()))?;
        if limits.secret.is_none() && !limits.insecure && !address.ip().is_loopback() {
            return Err(failed(
                "every host that can reach this address could use this agent; give a shared secret (--secret-file), or \
                 --insecure to permit this"
                    .into(),
            ));
        }
        let listener = TcpListener::bind(address)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| failed(error.to_string()))?;
        Ok(Agent { listener, context: AgentContext::new(clock, stop, limits, parse, log) })
    }

    /// The address on which it listens.
    ///
    /// # Errors
    /// The operating system does not return the address.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves controllers until the stop flag is set.
    pub fn serve(&self) {
        let connected = &AtomicUsize::new(0);
        thread::scope(|scope| {
            while !self.context.stop.load(Ordering::Relaxed) {
                match self.listener.accept() {
                    Ok((stream, peer)) if connected.load(Ordering::Relaxed) < CONNECTIONS_MAX => {
                        connected.fetch_add(1, Ordering::Relaxed);
                        let body = move || {
                            self.serve_controller(stream, peer);
                            connected.fetch_sub(1, Ordering::Relaxed);
                        };
                        if thread::Builder::new().name("agent-session".into()).spawn_scoped(scope, body).is_err() {
                            connected.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    // A connection above the limit is closed, which its controller notices.
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // No controller is waiting, or no file descriptor is free; the next attempt may succeed.
                    Err(_) => thread::sleep(POLL_INTERVAL),
                }
            }
        });
    }

    fn serve_controller(&self, stream: TcpStream, peer: SocketAddr) {
        // On some systems an accepted socket inherits this from the listener.
        if stream.set_nonblocking(false).is_ok() {
            session::serve_controller(&self.context, stream, peer);
        }
    }
}
