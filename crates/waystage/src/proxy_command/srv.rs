//! The servers of SRV records: each record is one, with its host, its port and its share of the keys.

use dns::{Resolver, SrvRecord};
use proxy::{SERVERS_MAX, ServerConfig};
use std::net::SocketAddr;
use std::time::Duration;

/// The servers, or why there are none.
type Servers = Result<Vec<ServerConfig>, String>;

/// The largest weight of a server.
const WEIGHT_MAX: u32 = 1000;

/// Looks up the records of a name, at this DNS server or at those of the system. Returns the servers, and how long they may be used.
pub(super) fn look_up(name: &str, server: Option<SocketAddr>) -> (Servers, Option<Duration>) {
    // The file of the system is read each time, because it can change while the proxy runs.
    let resolver = server.map_or_else(Resolver::from_system, |server| Ok(Resolver::at(server)));
    match resolver.and_then(|resolver| resolver.srv(name)) {
        Ok(answer) => (servers(&answer.records), Some(answer.time_to_live)),
        Err(error) => (Err(error.to_string()), None),
    }
}

/// The servers in the order of their names and ports, because the order of records means nothing.
fn servers(records: &[SrvRecord]) -> Servers {
    let first = records.iter().map(|record| record.priority).min().unwrap_or_default();
    let mut used: Vec<&SrvRecord> = records.iter().filter(|record| record.priority == first).collect();
    used.sort_by(|own, other| (&own.target, own.port).cmp(&(&other.target, other.port)));
    // Records that all have the weight 0 are equal. Beside others, it means hardly any requests (RFC 2782): no keys.
    if used.iter().any(|record| record.weight > 0) {
        used.retain(|record| record.weight > 0);
    }
    if used.len() > SERVERS_MAX {
        return Err(format!("{} SRV records; at most {SERVERS_MAX} servers are supported", used.len()));
    }
    let divisor = used.iter().fold(0, |divisor, record| greatest_common_divisor(divisor, record.weight.into())).max(1);
    let mut servers: Vec<ServerConfig> = Vec::new();
    for record in used {
        let SrvRecord { port, ref target, .. } = *record;
        if target.is_empty() {
            return Err("the SRV record has the host \".\", so the service is not available".into());
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !target.bytes().all(is_plain) {
            return Err(format!("an SRV record has {target:?}, which is not a host name"));
        }
        if port == 0 {
            return Err(format!("an SRV record has port 0 of {target}, where no server listens"));
        }
        let weight = (u32::from(record.weight) / divisor).max(1);
        if weight > WEIGHT_MAX {
            let ratio = if divisor > 1 { format!(", divided by {divisor}") } else { String::new() };
            return Err(format!(
                "the SRV record of {target}:{port} has weight {}{ratio}: more than {WEIGHT_MAX}",
                record.weight
            ));
        }
        let server = ServerConfig { weight, ..ServerConfig::new(&format!("{target}:{port}")) };
        if servers.last().is_some_and(|last| last.address == server.address) {
            return Err(format!("{target}:{port} has two SRV records"));
        }
        servers.push(server);
    }
    Ok(servers)
}

/// Weights with the same ratios, but as small as possible: DNS servers that compute shares of 100 change all of them with each server.
fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(records: &[(u16, u16, u16, &str)]) -> Result<Vec<String>, String> {
        let record = |&(priority, weight, port, target): &(u16, u16, u16, &str)| SrvRecord {
            priority,
            weight,
            port,
            target: target.into(),
        };
        let records: Vec<SrvRecord> = records.iter().map(record).collect();
        let shown = |server: ServerConfig| format!("{} {}", server.address, server.weight);
        servers(&records).map(|servers| servers.into_iter().map(shown).collect())
    }

    #[test]
    fn records_become_servers_in_order_with_small_weights() {
        assert_eq!(
            of(&[(0, 33, 2, "b.test"), (0, 33, 2, "a.test"), (0, 33, 1, "b.test")]).unwrap(),
            ["a.test:2 1", "b.test:1 1", "b.test:2 1"]
        );
        assert_eq!(of(&[(0, 20, 1, "a"), (0, 60, 1, "b")]).unwrap(), ["a:1 1", "b:1 3"]);
        assert_eq!(of(&[(0, 0, 1, "a"), (0, 0, 1, "b")]).unwrap(), ["a:1 1", "b:1 1"]);
        assert_eq!(of(&[(0, 0, 1, "a"), (0, 7, 1, "b"), (0, 5, 1, "c")]).unwrap(), ["b:1 7", "c:1 5"]);
        // Those of other priorities are for when these cannot be reached.
        assert_eq!(of(&[(2, 1, 1, "a"), (1, 1, 1, "b"), (2, 9, 0, ".")]).unwrap(), ["b:1 1"]);
        assert_eq!(of(&[(0, 65000, 1, "a"), (0, 130, 1, "b")]).unwrap(), ["a:1 500", "b:1 1"]);
    }

    #[test]
    fn records_that_are_no_list_of_servers_are_refused_in_one_line() {
        let names: Vec<String> = (0..1000).map(|number| format!("cache-{number}.test")).collect();
        let thousand: Vec<_> = names.iter().map(|name| (0, 1, 1, name.as_str())).collect();
        for (records, expected) in [
            (&[(0, 1, 1, "")][..], "the SRV record has the host \".\""),
            (&[(0, 1, 0, "a")], "an SRV record has port 0 of a"),
            (&[(0, 1, 1, "a"), (0, 2, 1, "a")], "a:1 has two SRV records"),
            (&[(0, 1, 1, "a b\n")], "an SRV record has \"a b\\n\", which is not a host name"),
            (
                &[(0, 2, 1, "a"), (0, 2002, 1, "b")],
                "the SRV record of b:1 has weight 2002, divided by 2: more than 1000",
            ),
            (&thousand, "1000 SRV records; at most 250 servers"),
        ] {
            let line = of(records).unwrap_err();
            assert!(line.starts_with(expected) && !line.contains('\n'), "{line}");
        }
    }
}
