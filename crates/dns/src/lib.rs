//! SRV records from DNS servers, which the resolver of the operating system does not return. A lookup blocks its thread for at most
//! `LOOKUP_TIMEOUT`.

mod answer;
mod error;
mod exchange;
mod resolver;

pub use answer::{SrvAnswer, SrvRecord};
pub use error::DnsError;
pub use resolver::{LOOKUP_TIMEOUT, Resolver};
