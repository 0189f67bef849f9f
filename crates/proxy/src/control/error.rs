//! Why a proxy cannot run: one line each, with what to do.

use crate::config::{ConfigError, TlsConfigError};
use net::AddressError;
use std::io;
use std::path::PathBuf;

/// Why a proxy cannot run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum ProxyError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Bind(#[from] net::BindError),
    #[error(transparent)]
    Tls(#[from] net::TlsError),
    #[error(transparent)]
    TlsConfig(#[from] TlsConfigError),
    #[error("cannot use {} for authentication: {fault}", .path.display())]
    Auth { path: PathBuf, fault: String },
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Metrics(String),
    #[error("cannot take over from {}: {source}; is its --control that path?", .path.display())]
    TakeOver { path: PathBuf, source: io::Error },
    #[error("cannot take over from {}: {source}", .path.display())]
    TakeOverRefused { path: PathBuf, source: io::Error },
    #[error("another process has taken over the listening sockets")]
    TakenOver,
    #[error("cannot listen for a successor on {}: {source}", .path.display())]
    Control { path: PathBuf, source: io::Error },
    #[error("cannot listen on an inherited socket: {source}")]
    Inherited { source: io::Error },
    #[error("an event loop panicked, which is a bug: {0}")]
    Panicked(String),
}
