//! One process goes on with another configuration: a second set of loops takes the listening sockets, then the clients one by
//! one, each when nothing of it is under way. Requests that have been sent are answered by the loops that sent them.
//!
//! ```text
//!   old loops: serve ------> no more requests are taken; each quiet client goes over ------> drained
//!   new loops:        accept ------------------------------------------------------------------------>
//! ```

use crate::config::{Config, PoolConfig, ServerConfig};
use crate::control::error::ProxyError;
use crate::control::listeners::Opened;
use crate::control::running::Running;
use crate::control::start::{Before, start_after};
use crate::observe::metrics_server::MetricsServer;
use crate::path::messages::{AcceptMessage, LoopMessage};
use crate::replication::pending_invalidations::PendingInvalidations;
use net::{Inherited, Post};
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// How long the acceptor may take for an answer.
const ACCEPTOR_WAIT: Duration = Duration::from_secs(5);

impl Running {
    /// Goes on with another configuration. The proxy that is returned serves from now on; this one is to be stopped
    /// when the clients that are left with it have gone (`linger`). What backends owe stays owed.
    ///
    /// # Errors
    /// When the configuration cannot work, or cannot be put into practice; this proxy then serves as before.
    pub fn reload(&mut self, config: Config) -> Result<Running, ProxyError> {
        config.check()?;
        let handed = self.lend()?;
        let metrics = self.metrics.as_ref().map(MetricsServer::socket).transpose()?.map(OwnedFd::from);
        let clock = self.clock.clone();
        let opened = Opened { activated: Vec::new(), handed };
        let new = start_after(config, Before { opened, metrics, take_over: None, itself: Some(self) }, clock)?;
        // Only now is it sure that the old one will not need them any more.
        let _ = new.accept_post.send(AcceptMessage::OwnFiles);
        Ok(new)
    }

    /// Replicas of the listening sockets. Their files stay this one's.
    fn lend(&self) -> Result<Vec<Inherited>, ProxyError> {
        let (sender, receiver) = sync_channel(1);
        let gone = || ProxyError::Io(io::Error::other("the thread that accepts is gone"));
        self.accept_post.send(AcceptMessage::Lend(sender)).map_err(|_| gone())?;
        let lent = receiver.recv_timeout(ACCEPTOR_WAIT).map_err(|_| gone())??;
        Ok(lent.into_iter().map(|inherited| Inherited { owns_file: false, ..inherited }).collect())
    }

    /// Stops accepting, and lets go of the clients to whoever accepts now.
    pub(crate) fn leave(&mut self, heir: &Post<AcceptMessage>) {
        let (sender, receiver) = sync_channel(1);
        if self.accept_post.send(AcceptMessage::Leave(sender)).is_ok() {
            let _ = receiver.recv_timeout(ACCEPTOR_WAIT);
        }
        if let Some(controller) = self.controller.take() {
            controller.retire();
        }
        if let Some(metrics) = self.metrics.take() {
            metrics.stop();
        }
        self.is_left = true;
        for (post, event_loop) in self.posts.iter().zip(&self.loops) {
            while post.send(LoopMessage::Move(heir.clone())).is_err() && !event_loop.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// What the backends of another configuration owe: those that this one knows, too, owe what they did.
    pub(crate) fn pending_for(&self, config: &Config) -> Vec<PendingInvalidations> {
        let name = |(pool, server): (&PoolConfig, &ServerConfig)| (pool.name.clone(), server.address.clone());
        let known: HashMap<_, _> = self.config.backends().map(name).zip(&self.pending).collect();
        config
            .backends()
            .map(|backend| known.get(&name(backend)).map(|&pending| pending.clone()).unwrap_or_default())
            .collect()
    }
}
