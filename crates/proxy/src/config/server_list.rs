//! A file with the servers of a pool: one in each line, as `HOST:PORT[:WEIGHT] [NAME]`. Other programs write it while the proxy runs,
//! so it may be incomplete at any time.

use crate::config::pool::ServerConfig;
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// The size of the largest file, with as many and as long lines as are allowed.
const BYTES_MAX: u64 = 256 * 1024;
/// The most servers of a proxy.
pub const SERVERS_MAX: usize = 250;
/// The number of characters of a wrong line that an error repeats.
const SHOWN_CHARACTERS: usize = 60;

/// Reads a file of servers: each server with the number of its line, from 1 on.
///
/// # Errors
/// If it cannot be read, is incomplete, or is not a list of servers; in one line, without the name of the file.
pub fn read_servers(path: &Path) -> Result<Vec<(usize, ServerConfig)>, String> {
    let bytes = read(path).map_err(|error| format!("cannot read the servers: {error}"))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err("it is larger than 256 KiB; is it a list of servers?".into());
    }
    parse_servers(&bytes)
}

/// The bytes of a file, or the first ones of a file that is too large.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let is_file = |metadata: Metadata| metadata.is_file().then_some(()).ok_or(io::Error::other("this is not a file"));
    // Opening some devices has effects.
    is_file(path.metadata()?)?;
    let file = open(path)?;
    is_file(file.metadata()?)?;
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file so that nothing blocks: a named pipe that has just replaced it would, until another process writes to it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

fn parse_servers(bytes: &[u8]) -> Result<Vec<(usize, ServerConfig)>, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        format!("line {line}: not UTF-8")
    })?;
    let mut servers: Vec<(usize, ServerConfig)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let shown: String = line.chars().take(SHOWN_CHARACTERS).flat_map(char::escape_debug).collect();
        let refuse = |problem: &str| format!("line {}: \"{shown}\": {problem}", index + 1);
        let server = ServerConfig::from_line(line).map_err(|problem| refuse(&problem))?;
        if servers.iter().any(|(_, other)| other.address == server.address) {
            return Err(refuse("this server is given twice"));
        }
        servers.push((index + 1, server));
        if servers.len() > SERVERS_MAX {
            return Err(format!("more than {SERVERS_MAX} servers, which is the most that a proxy supports"));
        }
    }
    if servers.is_empty() {
        return Err("there are no servers in it".into());
    }
    // A server in a line that is cut off can look complete: 10.0.0.1:1121 is not 10.0.0.1:11211.
    if !text.ends_with('\n') {
        return Err("the last line has no line end, so the file may be incomplete".into());
    }
    Ok(servers)
}

impl ServerConfig {
    /// A server, with a weight as in twemproxy: `HOST:PORT:WEIGHT`. Without brackets, a host has no colon.
    pub fn weighted(text: &str) -> ServerConfig {
        let weighted = || {
            let (address, weight) = text.rsplit_once(':')?;
            let (host, port) = address.rsplit_once(':')?;
            let host = host.strip_prefix("tls:").unwrap_or(host);
            let is_host = !host.contains(':') && host != "unix" || host.starts_with('[') && host.ends_with(']');
            let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let weight = weight.parse().ok().filter(|_| is_host && is_number(port) && is_number(weight))?;
            Some(ServerConfig { weight, ..ServerConfig::new(address) })
        };
        weighted().unwrap_or_else(|| ServerConfig::new(text))
    }

    /// The server of a line that has one.
    fn from_line(line: &str) -> Result<ServerConfig, String> {
        let mut words = line.split_ascii_whitespace();
        let (address, name) = (words.next().unwrap_or_default(), words.next());
        if words.next().is_some() || name.is_some_and(|name| name.starts_with('#')) {
            return Err("give HOST:PORT, HOST:PORT:WEIGHT, or one of these and a name".into());
        }
        let server = ServerConfig { name: name.map(Into::into), ..ServerConfig::weighted(address) };
        let parsed: net::Address = server.address.parse().map_err(|error: net::AddressError| error.to_string())?;
        if parsed.host_port().is_some_and(|host_port| host_port.port() == 0) {
            return Err("no server listens on port 0".into());
        }
        Ok(server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_server_may_have_a_weight() {
        for (text, address, weight) in [
            ("10.0.0.1:11211:3", "10.0.0.1:11211", 3),
            ("tls:cache-1:11212:2", "tls:cache-1:11212", 2),
            ("[::1]:11211:5", "[::1]:11211", 5),
            ("cache-1:11211", "cache-1:11211", 1),
            ("tls:cache-1:11211", "tls:cache-1:11211", 1),
            ("[::1]:11211", "[::1]:11211", 1),
            ("unix:/tmp/a:1:2", "unix:/tmp/a:1:2", 1),
            ("::1:11211", "::1:11211", 1),
            ("a:1:x", "a:1:x", 1),
            ("a:1:-2", "a:1:-2", 1),
        ] {
            let read = ServerConfig::weighted(text);
            assert_eq!((read.address.as_str(), read.weight, read.name), (address, weight, None), "{text}");
        }
    }

    #[test]
    fn a_line_is_a_server_a_comment_or_empty() {
        let text =
            "# written by discovery\n\n10.0.0.1:11211\r\n  cache-2:11211:3 second \n[::1]:11211 third\nunix:/a\n";
        let servers = parse_servers(text.as_bytes()).unwrap();
        let shown: Vec<_> =
            servers.iter().map(|(line, one)| (*line, one.address.as_str(), one.weight, one.name.as_deref())).collect();
        let expected = [
            (3, "10.0.0.1:11211", 1, None),
            (4, "cache-2:11211", 3, Some("second")),
            (5, "[::1]:11211", 1, Some("third")),
            (6, "unix:/a", 1, None),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_is_no_list_of_servers_is_refused_in_one_line() {
        let thousand: String = (0..1000).map(|number| format!("10.0.{}.{}:1\n", number / 250, number % 250)).collect();
        for (text, expected) in [
            (&b""[..], "there are no servers in it"),
            (b"\n# nothing\n", "there are no servers in it"),
            (b"10.0.0.1:11211\n10.0.0.2:112", "the last line has no line end, so the file may be incomplete"),
            (b"10.0.0.1:11211\n10.0.0.2", "line 2: \"10.0.0.2\": "),
            (b"a:1\n\n\xff\xfe\n", "line 3: not UTF-8"),
            (b"a:1\0\n", "line 1: \"a:1\\0\": "),
            (b"a:0\n", "line 1: \"a:0\": no server listens on port 0"),
            (b"a:1\na:1:2\n", "line 2: \"a:1:2\": this server is given twice"),
            (b"a:1 name more\n", "line 1: \"a:1 name more\": give HOST:PORT, HOST:PORT:WEIGHT"),
            (b"a:1 #comment\n", "line 1: \"a:1 #comment\": give HOST:PORT, HOST:PORT:WEIGHT"),
            (b"{\"servers\": [\"a:1\"]}\n", "line 1: "),
            (thousand.as_bytes(), "more than 250 servers"),
        ] {
            let line = parse_servers(text).unwrap_err();
            assert!(line.starts_with(expected) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_file_is_read_only_if_it_is_one_and_not_too_large() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers");
        assert!(read_servers(&path).unwrap_err().starts_with("cannot read the servers: No such file"));
        assert_eq!(read_servers(folder.path()).unwrap_err(), "cannot read the servers: this is not a file");
        std::fs::write(&path, vec![b'#'; 300_000]).unwrap();
        assert!(read_servers(&path).unwrap_err().starts_with("it is larger than 256 KiB"));
        std::fs::write(&path, "a:1\n").unwrap();
        assert_eq!(read_servers(&path), Ok(vec![(1, ServerConfig::new("a:1"))]));
    }

    #[test]
    fn a_named_pipe_that_replaces_the_file_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("servers");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(open(&path).map(|_| ()).is_ok()));
        assert_eq!(receiver.recv_timeout(std::time::Duration::from_secs(10)), Ok(true));
    }

    proptest! {
        /// A list that is cut off anywhere is refused, or has the first servers of the whole list.
        #[test]
        fn a_list_that_is_cut_off_has_no_wrong_server(servers in 1usize..6, cut in any::<prop::sample::Index>()) {
            let text: String = (0..servers).map(|number| format!("10.0.0.{number}:11211:{}\n", number + 10)).collect();
            let whole = parse_servers(text.as_bytes()).unwrap();
            if let Ok(part) = parse_servers(&text.as_bytes()[..cut.index(text.len())]) {
                prop_assert!(whole.starts_with(&part), "{:?}", part);
            }
        }
    }
}
