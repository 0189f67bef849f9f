//! Why there are no records.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a lookup has no result. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The file with the DNS servers cannot be used.
    #[error("cannot read the DNS servers from {}: {reason}", file.display())]
    System {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The text is not a name in DNS.
    #[error("not a name in DNS: labels have 1 to 63 bytes, and a name at most 253")]
    Name,
    /// The name does not exist, according to a DNS server.
    #[error("{0}: there is no such name (NXDOMAIN)")]
    NoName(SocketAddr),
    /// The name exists, but has no SRV records.
    #[error("{0}: the name has no SRV records")]
    NoRecords(SocketAddr),
    /// The name is an alias, and the reply has no SRV records of the other name.
    #[error("{server}: the name is an alias of {alias:?}, and the reply has no SRV records of that name")]
    NoRecordsOfAlias {
        /// The address of the server.
        server: SocketAddr,
        /// The other name.
        alias: String,
    },
    /// The last DNS server that was asked sent no usable reply.
    #[error("{server}: {reason}")]
    Server {
        /// The address of the server.
        server: SocketAddr,
        /// What it did.
        reason: String,
    },
}
