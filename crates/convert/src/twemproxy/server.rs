//! A server of twemproxy, `host:port:weight [name]` or `/path:weight [name]`, and the name by which twemproxy hashes it.

use crate::output::Server;
use key_distribution::Distribution;

/// The port that twemproxy leaves out of the name of a server, as libmemcached does.
const KETAMA_PORT: u16 = 11211;

/// Reads a server. Its name is set if twemproxy hashes another text than Waystage would.
///
/// # Errors
/// The problem, without its place.
pub(super) fn parse(text: &str) -> Result<(Server, String), String> {
    let malformed = || format!("{text:?} is not HOST:PORT:WEIGHT or /PATH:WEIGHT, with a name behind it or not");
    let (address, given) = match text.rsplit_once(' ') {
        Some((address, name)) => (address, Some(name)),
        None => (text, None),
    };
    let (place, weight) = address.rsplit_once(':').ok_or_else(malformed)?;
    let weight = number(weight).ok_or_else(malformed)?;
    if weight == 0 {
        return Err(format!("{text:?} has no weight; give at least 1, or leave the server out"));
    }
    let (address, hashed) = if place.starts_with('/') {
        // twemproxy cuts the name from the text as if there was a port of no digits, so the colon belongs to it.
        (format!("unix:{place}"), format!("{place}:"))
    } else {
        let (host, digits) = place.rsplit_once(':').ok_or_else(malformed)?;
        let port = port(digits).filter(|_| !host.is_empty()).ok_or_else(malformed)?;
        (host_port(host, port), if port == KETAMA_PORT { host.into() } else { place.into() })
    };
    let hashed = given.map_or(hashed, str::to_string);
    if hashed.is_empty() || hashed.chars().any(char::is_control) {
        return Err(malformed());
    }
    let is_needed = given.is_some() || Distribution::Ketama.name_of(&address) != hashed;
    Ok((Server { address, name: is_needed.then(|| hashed.clone()), weight }, hashed))
}

/// The address of a listener: `host:port`, or `/path` with permissions behind it or not.
pub(super) fn listener(text: &str) -> Result<(String, Option<&str>), String> {
    if text.starts_with('/') {
        let (path, permissions) = text.rsplit_once(' ').map_or((text, None), |(path, bits)| (path, Some(bits)));
        return Ok((format!("unix:{path}"), permissions));
    }
    let found = text.rsplit_once(':').and_then(|(host, digits)| Some((host, port(digits)?)));
    match found.filter(|(host, _)| !host.is_empty()) {
        Some((host, port)) => Ok((host_port(host, port), None)),
        None => Err(format!("{text:?} is not HOST:PORT or /PATH")),
    }
}

/// twemproxy takes an IPv6 address without brackets.
fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn port(digits: &str) -> Option<u16> {
    number(digits).and_then(|port| u16::try_from(port).ok()).filter(|&port| port > 0)
}

/// A number of digits alone.
pub(super) fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The order in which twemproxy numbers servers, and so the order of `modula`: by the length of the name, then by the name.
pub(super) fn sort(servers: &mut [(Server, String)]) {
    servers.sort_by(|(_, name), (_, other)| {
        name.len().cmp(&other.len()).then_with(|| name.as_bytes().cmp(other.as_bytes()))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_hashed_by_the_name_that_twemproxy_uses() {
        for (text, address, name, hashed, weight) in [
            ("10.0.0.1:11211:1", "10.0.0.1:11211", None, "10.0.0.1", 1),
            ("10.0.0.1:11311:3", "10.0.0.1:11311", None, "10.0.0.1:11311", 3),
            ("cache.test:11211:2 one", "cache.test:11211", Some("one"), "one", 2),
            // The text of the port is a part of the name.
            ("a:011311:1", "a:11311", Some("a:011311"), "a:011311", 1),
            ("a:011211:1", "a:11211", None, "a", 1),
            ("::1:11211:1", "[::1]:11211", Some("::1"), "::1", 1),
            ("fe80::2:11311:1", "[fe80::2]:11311", Some("fe80::2:11311"), "fe80::2:11311", 1),
            ("/tmp/m.sock:1", "unix:/tmp/m.sock", Some("/tmp/m.sock:"), "/tmp/m.sock:", 1),
            ("/tmp/m.sock:4 m", "unix:/tmp/m.sock", Some("m"), "m", 4),
        ] {
            let expected = Server { address: address.into(), name: name.map(Into::into), weight };
            assert_eq!(parse(text), Ok((expected, hashed.to_string())), "{text}");
        }
        for text in [
            "",
            "a",
            "a:1",
            ":1:1",
            "a:b:1",
            "a:0:1",
            "a:1:x",
            "a:1:-1",
            "a:65536:1",
            "a:1:99999999999",
            "/m",
            "a:1:1 ",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn servers_are_ordered_by_the_length_of_their_names() {
        let mut servers: Vec<_> =
            ["a:11:1 bb", "b:1:1 c", "c:1:1 aa", "d:1:1 b"].map(|text| parse(text).unwrap()).into();
        sort(&mut servers);
        assert_eq!(servers.iter().map(|(_, name)| name.as_str()).collect::<Vec<_>>(), ["b", "c", "aa", "bb"]);
    }

    #[test]
    fn a_listener_is_a_port_or_a_path() {
        assert_eq!(listener("0.0.0.0:22121"), Ok(("0.0.0.0:22121".into(), None)));
        assert_eq!(listener("::1:22121"), Ok(("[::1]:22121".into(), None)));
        assert_eq!(listener("/tmp/a"), Ok(("unix:/tmp/a".into(), None)));
        assert_eq!(listener("/tmp/a 0600"), Ok(("unix:/tmp/a".into(), Some("0600"))));
        assert!(listener("22121").is_err() && listener("a:x").is_err());
    }
}
