//! Queries for SRV records, and what replies say.

use simple_dns::rdata::{OPT, RData};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::time::Duration;

/// The longest datagram that servers may send: it passes every usual network in one piece.
const DATAGRAM_BYTES: u16 = 1232;
/// The most aliases that are followed in one reply.
const ALIASES_MAX: usize = 8;
const HEADER_BYTES: usize = 12;
/// The flag of a reply in the third byte, and the flag of one that was cut off.
const IS_REPLY: u8 = 0x80;
const IS_TRUNCATED: u8 = 0x02;

/// The SRV records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvAnswer {
    /// At least one, in the order of the reply, which may differ each time.
    pub records: Vec<SrvRecord>,
    /// How long they may be used, by the shortest time to live among them.
    pub time_to_live: Duration,
}

/// One SRV record (RFC 2782).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvRecord {
    /// Records with a higher number are for when those with a lower one cannot be reached.
    pub priority: u16,
    /// The share of this record among those of its priority.
    pub weight: u16,
    /// The port of the service.
    pub port: u16,
    /// The host, in lower case and without the dot at the end. Empty: the service is not available.
    pub target: String,
}

/// What a message from a server is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The reply to another query, or none.
    Foreign,
    /// The server has cut the reply off.
    Truncated,
    /// The name does not exist.
    NoName,
    /// The name has no such records. Nor has the name for which it is an alias, if it is one.
    NoRecords(Option<String>),
    /// The records.
    Records(SrvAnswer),
    /// Why there is no usable reply.
    Failure(String),
}

/// A query for the SRV records of a name. None if it is not a name.
pub(crate) fn query(id: u16, name: &str) -> Option<Vec<u8>> {
    let name = Name::new(name).ok().filter(|name| !name.get_labels().is_empty())?;
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    packet.questions.push(Question::new(name, QTYPE::TYPE(TYPE::SRV), QCLASS::CLASS(CLASS::IN), false));
    *packet.opt_mut() = Some(OPT { opt_codes: Vec::new(), udp_packet_size: DATAGRAM_BYTES, version: 0 });
    packet.build_bytes_vec().ok()
}

/// Reads a message as the reply to this query.
pub(crate) fn read(message: &[u8], id: u16, name: &str) -> Message {
    // A reply that is cut off need not be well-formed.
    let Some(header) = message.get(..HEADER_BYTES) else { return invalid() };
    if header[..2] != id.to_be_bytes() || header[2] & IS_REPLY == 0 {
        return Message::Foreign;
    }
    if header[2] & IS_TRUNCATED != 0 {
        return Message::Truncated;
    }
    let Ok(packet) = Packet::parse(message) else { return invalid() };
    let Ok(asked) = Name::new(name) else { return invalid() };
    let is_asked = |question: &Question<'_>| question.qname == asked && question.qtype == QTYPE::TYPE(TYPE::SRV);
    match packet.rcode() {
        // Servers that fail need not repeat the question.
        RCODE::NoError | RCODE::NameError if !packet.questions.iter().any(is_asked) => Message::Foreign,
        RCODE::NoError => records(&packet, asked),
        RCODE::NameError => Message::NoName,
        RCODE::ServerFailure => Message::Failure("the server failed (SERVFAIL)".into()),
        RCODE::Refused => Message::Failure("the server refuses the query (REFUSED)".into()),
        other => Message::Failure(format!("the server replied with the error {other:?}")),
    }
}

fn invalid() -> Message {
    Message::Failure("sent bytes that are not a valid reply".into())
}

/// The records of a name, or of the name for which it is an alias.
fn records<'p>(packet: &'p Packet<'p>, asked: Name<'p>) -> Message {
    let (mut owner, mut seconds, mut is_alias) = (asked, u32::MAX, false);
    for _ in 0..ALIASES_MAX {
        let alias = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(alias) if record.name == owner => Some((alias.0.clone(), record.ttl)),
            _ => None,
        });
        let Some((alias, ttl)) = alias else { break };
        (owner, seconds, is_alias) = (alias, seconds.min(ttl), true);
    }
    let mut records = Vec::new();
    for record in packet.answers.iter().filter(|record| record.name == owner) {
        if let RData::SRV(srv) = &record.rdata {
            seconds = seconds.min(record.ttl);
            let target = srv.target.to_string().to_ascii_lowercase();
            records.push(SrvRecord { priority: srv.priority, weight: srv.weight, port: srv.port, target });
        }
    }
    if records.is_empty() {
        return Message::NoRecords(is_alias.then(|| owner.to_string()));
    }
    Message::Records(SrvAnswer { records, time_to_live: Duration::from_secs(seconds.into()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use simple_dns::ResourceRecord;
    use simple_dns::rdata::{CNAME, SRV};

    const NAME: &str = "_memcached._tcp.cache.test";

    fn reply(answers: Vec<ResourceRecord<'_>>) -> Vec<u8> {
        let query = query(7, NAME).unwrap();
        let mut packet = Packet::parse(&query).unwrap().into_reply();
        packet.answers = answers;
        packet.build_bytes_vec_compressed().unwrap()
    }

    fn srv<'r>(name: &'r str, ttl: u32, target: &'r str) -> ResourceRecord<'r> {
        let data = SRV { priority: 1, weight: 2, port: 3, target: Name::new(target).unwrap() };
        ResourceRecord::new(Name::new(name).unwrap(), CLASS::IN, ttl, RData::SRV(data))
    }

    #[test]
    fn records_of_the_name_and_of_its_alias_are_read() {
        let alias = |from, to, ttl| {
            let to = RData::CNAME(CNAME(Name::new(to).unwrap()));
            ResourceRecord::new(Name::new(from).unwrap(), CLASS::IN, ttl, to)
        };
        let bytes = reply(vec![
            srv("_MEMCACHED._tcp.cache.test", 50, "A.cache.test"),
            srv(NAME, 40, "."),
            srv("other.test", 1, "b."),
        ]);
        let Message::Records(answer) = read(&bytes, 7, NAME) else { panic!() };
        let targets: Vec<&str> = answer.records.iter().map(|record| record.target.as_str()).collect();
        assert_eq!((targets, answer.time_to_live), (vec!["a.cache.test", ""], Duration::from_secs(40)));
        assert_eq!(answer.records[0], SrvRecord { priority: 1, weight: 2, port: 3, target: "a.cache.test".into() });
        let bytes = reply(vec![alias(NAME, "b.test", 5), alias("b.test", "c.test", 9), srv("c.test", 30, "d.test")]);
        let Message::Records(answer) = read(&bytes, 7, NAME) else { panic!() };
        assert_eq!((answer.records.len(), answer.time_to_live), (1, Duration::from_secs(5)));
        // Aliases in a circle, and one whose records are missing.
        let bytes = reply(vec![alias(NAME, "b.test", 5), alias("b.test", NAME, 5)]);
        assert_eq!(read(&bytes, 7, NAME), Message::NoRecords(Some(NAME.into())));
        let bytes = reply(vec![alias(NAME, "b.test", 5), srv(NAME, 5, "c.test")]);
        assert_eq!(read(&bytes, 7, NAME), Message::NoRecords(Some("b.test".into())));
    }

    #[test]
    fn other_messages_are_recognised() {
        let bytes = reply(vec![srv(NAME, 9, "a.test")]);
        assert_eq!(read(&bytes, 8, NAME), Message::Foreign);
        assert_eq!(read(&bytes, 7, "_other._tcp.cache.test"), Message::Foreign);
        assert_eq!(read(&query(7, NAME).unwrap(), 7, NAME), Message::Foreign);
        assert_eq!(read(&reply(Vec::new()), 7, NAME), Message::NoRecords(None));
        let with = |rcode| {
            let mut bytes = reply(Vec::new());
            bytes[3] |= rcode;
            read(&bytes, 7, NAME)
        };
        assert_eq!(with(3), Message::NoName);
        assert_eq!(with(2), Message::Failure("the server failed (SERVFAIL)".into()));
        assert_eq!(with(5), Message::Failure("the server refuses the query (REFUSED)".into()));
        assert!(matches!(with(1), Message::Failure(text) if text.contains("FormatError")));
        let mut truncated = bytes[..20].to_vec();
        truncated[2] |= IS_TRUNCATED;
        assert_eq!(read(&truncated, 7, NAME), Message::Truncated);
        assert_eq!(read(&bytes[..20], 7, NAME), invalid());
        assert_eq!(read(b"", 7, NAME), invalid());
        let label = "a".repeat(64);
        for name in ["", ".", &label, &"a.".repeat(130)] {
            assert_eq!(query(1, name), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_message_stops_the_program(bytes in prop::collection::vec(any::<u8>(), 0..600), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            read(&bytes, 7, NAME);
            let mut damaged = reply(vec![srv(NAME, 9, "a.test"), srv(NAME, 9, "b.test")]);
            let at = at.index(damaged.len());
            damaged[at] = byte;
            read(&damaged, 7, NAME);
            read(&damaged[..at], 7, NAME);
        }
    }
}
