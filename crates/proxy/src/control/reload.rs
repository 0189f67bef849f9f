//! Reloads the configuration within one process. A second set of event loops takes over the listening sockets, then the clients
//! one by one, each when none of its requests is in flight. Requests in flight are answered by the loops that sent them.
//!
//! ```text
//!   old loops: serve ------> accept no more requests; each idle client moves ------> drained
//!   new loops:        accept ------------------------------------------------------------------------>
//! ```

use crate::config::Config;
use crate::control::controller::Controller;
use crate::control::error::ProxyError;
use crate::control::listeners::Opened;
use crate::control::running::Running;
use crate::control::start::{Before, start_after};
use crate::path::messages::{AcceptMessage, LoopMessage};
use net::{Inherited, Post};
use std::io;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long the acceptor may take to reply.
const ACCEPTOR_WAIT: Duration = Duration::from_secs(5);

impl Running {
    /// Starts a proxy with another configuration, which serves from now on. The caller stops this one when its remaining clients
    /// have gone (`wait_for_clients`). Pending invalidations stay pending.
    ///
    /// # Errors
    /// If the configuration is invalid or the new proxy cannot start. This proxy then serves as before.
    pub fn reload(&mut self, config: Config) -> Result<Running, ProxyError> {
        config.check()?;
        if self.is_handed_over() {
            return Err(ProxyError::TakenOver);
        }
        // Those of the service manager are used, even if the new configuration does not name them.
        let (activated, handed) = self.lend()?.into_iter().partition(|inherited| inherited.is_activated);
        let metrics = self.metrics.as_ref().map(|metrics| metrics.server.socket()).transpose()?;
        let clock = self.clock.clone();
        let opened = Opened { activated, handed };
        let watchdog = self.watchdog.clone();
        start_after(config, Before { opened, metrics, take_over: None, watchdog, itself: Some(self) }, clock)
    }

    /// Duplicates of the listening sockets.
    fn lend(&self) -> Result<Vec<Inherited>, ProxyError> {
        let (sender, receiver) = sync_channel(1);
        let gone = || ProxyError::Io(io::Error::other("the accepting thread has ended"));
        self.accept_post.send_blocking(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        Ok(receiver.recv_timeout(ACCEPTOR_WAIT).map_err(|_| gone())??)
    }

    /// Makes sure that no other process takes over any more. Fails if one has done so.
    pub(crate) fn stop_handing_over(&mut self) -> Result<(), ProxyError> {
        let is_possible = self.controller.as_mut().is_none_or(Controller::retire);
        if is_possible { Ok(()) } else { Err(ProxyError::TakenOver) }
    }

    /// Stops accepting, and moves the clients to the new acceptor.
    pub(crate) fn move_clients_to(&mut self, successor: &Post<AcceptMessage>) {
        self.newest_acceptor.replace(successor.clone());
        let (sender, receiver) = sync_channel(1);
        if self.accept_post.send_blocking(AcceptMessage::Retire(sender)).is_ok() {
            let _ = receiver.recv_timeout(ACCEPTOR_WAIT);
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        if let Some(log) = &self.log {
            log.queue.replaced();
        }
        self.is_replaced = true;
        for post in &self.posts {
            // If this fails, the loop has ended.
            let _ = post.send_blocking(LoopMessage::MoveClients(self.newest_acceptor.clone()));
        }
    }
}
