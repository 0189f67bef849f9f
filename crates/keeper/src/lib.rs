//! Runs the programs of the lab on a host that the lab reaches through SSH, and ends all of them in every case.
//!
//! The lab sends requests on standard input and receives replies on standard output (docs/ssh.md, Protocol). When
//! standard input closes or stays silent, the lab or the network is gone: the keeper kills its programs and removes its
//! folder. If the keeper itself is killed, the kernel kills its programs. Knows nothing of experiments.

mod children;
mod files;
mod message;
mod patience;
mod session;

pub use children::become_program;
pub use message::PROTOCOL;
pub use session::{Settings, keep};
