//! Readiness and buffered non-blocking connections.
//! Knows no protocol above the transport, no request and no time; its callers interpret the bytes.

mod address;
mod connection;
mod control;
mod inbox;
mod inherited;
mod listener;
mod listening;
mod mailbox;
mod network;
mod outbox;
mod poller;
mod proxy_header;
mod socket_file;
mod stream;
mod timer;
mod tls;
mod tls_names;
mod tls_stream;
mod unsent;

pub use address::{Address, AddressError, HostPort};
pub use connection::{Connection, Flushed};
pub use control::{Channel, ControlSocket};
pub use inbox::{Buffers, Filled, Inbox};
pub use inherited::Inherited;
pub use listener::{BindError, bind, resolve};
pub use listening::Listening;
pub use mailbox::{Mailbox, Post, Refused, mailbox};
pub use network::{Network, NetworkError};
pub use outbox::Outbox;
pub use poller::{Poller, Ready, Token};
pub use proxy_header::{ClientAddress, HeaderReader};
pub use stream::Endpoint;
pub use timer::Timer;
pub use tls::{ClientTls, IdentityFiles, ServerTls, TlsError, TlsTo, is_tls_failure};
pub use unsent::limit_unsent_bytes;
