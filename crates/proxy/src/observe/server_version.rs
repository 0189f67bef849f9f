//! The versions of the servers, from their replies to the probes. The proxy reports the lowest, because clients choose commands by it.

use crate::observe::counters::LoopCounters;

/// Reported until a server has answered: the beginning of the series of versions with meta commands.
const UNTIL_KNOWN: ServerVersion = ServerVersion(0x0001_0006_0000);

/// A version of memcached, with 16 bits for each of its three numbers. Zero means that it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServerVersion(u64);

impl ServerVersion {
    /// The number in a reply to `version`, such as "VERSION 1.6.18\r\n". What follows the number does not matter.
    pub(crate) fn of_reply(line: &[u8]) -> Option<ServerVersion> {
        let text = str::from_utf8(line.strip_prefix(b"VERSION ")?).ok()?;
        let end = text.find(|character: char| character != '.' && !character.is_ascii_digit()).unwrap_or(text.len());
        let numbers: Vec<u16> = text[..end].split('.').map_while(|number| number.parse().ok()).collect();
        let [major, minor, patch, ..] = numbers[..] else { return None };
        let version = (u64::from(major) << 32) | (u64::from(minor) << 16) | u64::from(patch);
        (version > 0).then_some(ServerVersion(version))
    }

    /// The version as a gauge.
    pub(crate) fn code(self) -> u64 {
        self.0
    }

    /// The lowest version of the servers that have answered these loops.
    fn lowest<'l>(loops: impl IntoIterator<Item = &'l LoopCounters>) -> Option<ServerVersion> {
        let backends = loops.into_iter().flat_map(|counters| &counters.backends);
        backends.map(|backend| backend.version.get()).filter(|&code| code > 0).min().map(ServerVersion)
    }
}

/// The text of the reply to `version`: the lowest version of the servers that have answered these loops. Nothing else, because some
/// clients read its last three numbers, and others expect one word.
pub(crate) fn version_text<'l>(loops: impl IntoIterator<Item = &'l LoopCounters>) -> String {
    let ServerVersion(code) = ServerVersion::lowest(loops).unwrap_or(UNTIL_KNOWN);
    format!("{}.{}.{}", code >> 32, (code >> 16) & 0xffff, code & 0xffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_version_is_read() {
        for (line, expected) in [
            ("VERSION 1.6.18\r\n", Some((1, 6, 18))),
            ("VERSION 1.4.5_4_gaa7839e\r\n", Some((1, 4, 5))),
            ("VERSION 1.6.38-waystage-0.1.0\r\n", Some((1, 6, 38))),
            ("VERSION 10.0.65535.1\n", Some((10, 0, 65535))),
            ("VERSION 1.6\r\n", None),
            ("VERSION 1.6.99999\r\n", None),
            ("VERSION 0.0.0\r\n", None),
            ("VERSION unknown\r\n", None),
            ("VERSION \r\n", None),
            ("ERROR\r\n", None),
        ] {
            let expected = expected.map(|(major, minor, patch)| (major << 32) | (minor << 16) | patch);
            assert_eq!(ServerVersion::of_reply(line.as_bytes()).map(ServerVersion::code), expected, "{line}");
        }
    }

    #[test]
    fn the_lowest_known_version_is_reported() {
        let loops = LoopCounters::new(1, 3, 0);
        assert_eq!(version_text([&loops]), "1.6.0");
        for (backend, line, expected) in [(1, "VERSION 1.6.40\r\n", "1.6.40"), (0, "VERSION 1.6.9\r\n", "1.6.9")] {
            loops.backends[backend].version.set(ServerVersion::of_reply(line.as_bytes()).unwrap().code());
            assert_eq!(version_text([&loops]), expected);
        }
    }
}
