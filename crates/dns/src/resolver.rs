//! Which servers are asked, for which names, and for how long.

use crate::answer::{Message, SrvAnswer};
use crate::error::DnsError;
use crate::exchange::exchange;
use clock::{Clock, Nanos};
use resolv_conf::Config;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// The longest time of a lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(4);
/// The shortest time that a server has to reply.
const TRY_MIN: Duration = Duration::from_millis(500);
/// Where the operating system's resolver reads its servers.
const SYSTEM_FILE: &str = "/etc/resolv.conf";
/// The largest such file that is read.
const SYSTEM_BYTES_MAX: u64 = 64 * 1024;
const PORT: u16 = 53;
/// How often each server is asked, if a resolver has one server that was chosen.
const ATTEMPTS: u32 = 2;

/// Looks up SRV records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolver {
    servers: Vec<SocketAddr>,
    /// Domains that are appended to names.
    search: Vec<String>,
    /// A name with as many dots is looked up as it is first.
    dots: usize,
    attempts: u32,
    /// How long a server has to reply.
    patience: Duration,
}

impl Resolver {
    /// Sends queries to one server, and appends nothing to names.
    pub fn at(server: SocketAddr) -> Resolver {
        Resolver { servers: vec![server], search: Vec::new(), dots: 0, attempts: ATTEMPTS, patience: LOOKUP_TIMEOUT }
    }

    /// Sends queries as the operating system's resolver does, by /etc/resolv.conf.
    ///
    /// # Errors
    /// If the file cannot be read, or has lines that are none of such a file.
    pub fn from_system() -> Result<Resolver, DnsError> {
        Resolver::from_file(Path::new(SYSTEM_FILE))
    }

    fn from_file(path: &Path) -> Result<Resolver, DnsError> {
        let fail = |reason: String| DnsError::System { file: path.into(), reason };
        let length = path.metadata().map_err(|error| fail(error.to_string()))?.len();
        if length > SYSTEM_BYTES_MAX {
            return Err(fail(format!("{length} bytes; at most {SYSTEM_BYTES_MAX} are read")));
        }
        let bytes = std::fs::read(path).map_err(|error| fail(error.to_string()))?;
        let mut config = Config::parse(bytes).map_err(|error| fail(error.to_string()))?;
        config.glibc_normalize();
        let server = |address| SocketAddr::new(IpAddr::from(address), PORT);
        Ok(Resolver {
            servers: config.get_nameservers_or_local().into_iter().map(server).collect(),
            search: config.get_last_search_or_domain().cloned().collect(),
            dots: config.ndots as usize,
            attempts: config.attempts.clamp(1, 5),
            patience: Duration::from_secs(config.timeout.max(1).into()),
        })
    }

    /// The SRV records of a name. A name with a dot at the end is complete; to another one, the domains of the system are appended as
    /// for other lookups.
    ///
    /// # Errors
    /// If no server has any in time.
    pub fn srv(&self, name: &str) -> Result<SrvAnswer, DnsError> {
        let clock = Clock::monotonic();
        let end = clock.now() + LOOKUP_TIMEOUT;
        let mut last = DnsError::Name;
        for name in self.full_names(name) {
            match self.ask(&name, &clock, end) {
                // Only this shows that another name can be meant. After a failure, the next name could be a wrong one.
                Err(error @ (DnsError::NoName(_) | DnsError::NoRecords(_) | DnsError::NoRecordsOfAlias { .. })) => {
                    last = error;
                }
                // Too long with this domain, so nobody can mean it.
                Err(DnsError::Name) => {}
                other => return other,
            }
        }
        Err(last)
    }

    /// The names that are looked up one after the other, until one of them exists.
    fn full_names(&self, name: &str) -> Vec<String> {
        if name.ends_with('.') {
            return vec![name.into()];
        }
        let mut names: Vec<String> = self.search.iter().map(|domain| format!("{name}.{domain}")).collect();
        let is_first = name.matches('.').count() >= self.dots;
        names.insert(if is_first { 0 } else { names.len() }, name.into());
        names
    }

    /// Asks the servers one after the other, until one of them has an answer.
    fn ask(&self, name: &str, clock: &Clock, end: Nanos) -> Result<SrvAnswer, DnsError> {
        let tries = self.attempts.saturating_mul(self.servers.len() as u32).max(1);
        let patience = self.patience.min((LOOKUP_TIMEOUT / tries).max(TRY_MIN));
        let mut last = DnsError::Name;
        for _ in 0..self.attempts {
            for &server in &self.servers {
                let deadline = (clock.now() + patience).min(end);
                let message = exchange(server, name, clock, deadline).ok_or(DnsError::Name)?;
                last = match message {
                    Message::Records(answer) => return Ok(answer),
                    Message::NoName => return Err(DnsError::NoName(server)),
                    Message::NoRecords(None) => return Err(DnsError::NoRecords(server)),
                    Message::NoRecords(Some(alias)) => return Err(DnsError::NoRecordsOfAlias { server, alias }),
                    Message::Failure(reason) => DnsError::Server { server, reason },
                    Message::Foreign | Message::Truncated => {
                        DnsError::Server { server, reason: "sent no reply to the query".into() }
                    }
                };
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    fn read(text: &str) -> Result<Resolver, DnsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        write(&path, text).unwrap();
        Resolver::from_file(&path)
    }

    #[test]
    fn the_file_of_the_system_names_servers_and_domains() {
        let text = "# comment\nnameserver 10.0.0.53\nnameserver fd00::53\nsearch a.test b.test\noptions ndots:3 timeout:2 attempts:4\n";
        let resolver = read(text).unwrap();
        assert_eq!(resolver.servers, ["10.0.0.53:53".parse().unwrap(), "[fd00::53]:53".parse().unwrap()]);
        assert_eq!((resolver.dots, resolver.attempts, resolver.patience), (3, 4, Duration::from_secs(2)));
        let names = |name| resolver.full_names(name);
        assert_eq!(names("_m._tcp.x"), ["_m._tcp.x.a.test", "_m._tcp.x.b.test", "_m._tcp.x"]);
        assert_eq!(names("_m._tcp.x.y"), ["_m._tcp.x.y", "_m._tcp.x.y.a.test", "_m._tcp.x.y.b.test"]);
        assert_eq!(names("_m._tcp.x."), ["_m._tcp.x."]);
        let local = read("").unwrap();
        assert_eq!(local.servers, ["127.0.0.1:53".parse().unwrap(), "[::1]:53".parse().unwrap()]);
        let many = read(&"nameserver 10.0.0.1\n".repeat(9)).unwrap();
        assert_eq!(many.servers.len(), 3);
    }

    #[test]
    fn a_domain_that_makes_the_name_too_long_is_skipped() {
        let records = vec![(0, 1, 11211, "a.test".into())];
        let server = testkit::DnsServer::start(testkit::DnsReply::Records(records, 1));
        let domain = ["d".repeat(60), "e".repeat(60), "f".repeat(60)].join(".");
        let mut resolver = Resolver { search: vec![domain], dots: 9, ..Resolver::at(server.address()) };
        let name = format!("_m._tcp.{}.test", "x".repeat(60));
        assert_eq!(resolver.srv(&name).map(|answer| answer.records.len()), Ok(1));
        // The failure of the other names is the reason, in any order.
        server.set(testkit::DnsReply::NoName);
        for dots in [9, 1] {
            resolver.dots = dots;
            assert_eq!(resolver.srv(&name), Err(DnsError::NoName(server.address())));
        }
        assert_eq!(resolver.srv(&"a".repeat(64)), Err(DnsError::Name));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_one_line() {
        for text in ["nameserver nothing\n", "options ndots:x\n", "\0\0\0", &"#".repeat(70_000)] {
            let line = read(text).unwrap_err().to_string();
            assert!(line.starts_with("cannot read the DNS servers from ") && !line.contains('\n'), "{text:?}: {line}");
        }
        let missing = Resolver::from_file(Path::new("/nowhere/resolv.conf")).unwrap_err().to_string();
        assert!(missing.contains("No such file"), "{missing}");
    }
}
