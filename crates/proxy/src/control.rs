//! What starts, changes and ends a proxy. None of it is on the path of a request.

mod auth;
mod change;
mod controller;
mod error;
mod hand_over;
mod inherit;
mod listeners;
mod logging;
mod prepare;
mod reload;
mod resolve;
mod running;
mod start;
mod threads;
mod traces;
mod transport;

pub use change::{ChangeRequest, ChangedServer, ServerChange, change_server};
pub use error::ProxyError;
pub use running::{Running, Totals};
pub use start::{FromManager, start, start_with};
pub use transport::check_files;
