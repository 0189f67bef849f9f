//! Which requests of one client may be under way at the same time, so that none of them overtakes another that it must not.
//!
//! A client that sends `set` and then `get` of one key, without waiting, must see what it has set. Where both travel over one
//! connection that follows by itself; where they do not, the session holds the later one back until the earlier one is
//! answered (docs/decisions/0011-dispatch-disciplines.md).

use crate::config::Discipline;
use crate::path::meta;
use wire::{Request, Verb};

/// What a request is to the order of its client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The proxy answers it itself.
    Local,
    /// It changes nothing.
    Read,
    /// It may change something; `gat` does, too. Or it tells what reads leave behind, as `me` does.
    Write,
}

/// What may be under way together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// Everything: it stays in order on its connection.
    All,
    /// Reads among each other, and writes among each other.
    SameKind,
    /// Reads only.
    Reads,
}

impl Access {
    /// The kind of a request.
    pub(crate) fn of(request: &Request<'_>) -> Access {
        match request {
            Request::Meta(meta) if meta::only_reads(meta) => Access::Read,
            _ => match request.verb() {
                Verb::Get | Verb::Gets => Access::Read,
                Verb::Version | Verb::Verbosity | Verb::Stats | Verb::Quit | Verb::Mn => Access::Local,
                _ => Access::Write,
            },
        }
    }
}

impl Overlap {
    /// What a discipline keeps in order by itself decides what its clients' requests may do. It keeps less if reads may ask
    /// other copies than the primary.
    pub(crate) fn of(discipline: Discipline, only_primaries_are_read: bool) -> Overlap {
        match discipline {
            Discipline::Pipelined if only_primaries_are_read => Overlap::All,
            Discipline::Pipelined => Overlap::SameKind,
            Discipline::PerBackend { .. } => Overlap::SameKind,
            Discipline::Shared { .. } => Overlap::Reads,
        }
    }

    /// Whether a request may be sent on while others of its client are under way.
    pub(crate) fn allows(self, under_way: Access, next: Access) -> bool {
        match self {
            _ if under_way == Access::Local || next == Access::Local => true,
            Overlap::All => true,
            Overlap::SameKind => under_way == next,
            Overlap::Reads => under_way == Access::Read && next == Access::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Limits, ParsedRequest, parse_request};

    fn kind(text: &str) -> Access {
        match parse_request(text.as_bytes(), &Limits::default()) {
            ParsedRequest::Request { request, .. } => Access::of(&request),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_may_change_something_or_tells_what_reads_change_is_a_write() {
        for text in ["get a", "gets a b", "mg a", "mg a v q", "mg YQ== b v k O1 s t f c u"] {
            assert_eq!(kind(&format!("{text}\r\n")), Access::Read, "{text}");
        }
        let writes = [
            ("gat 0 a", ""),
            ("delete a", ""),
            ("incr a 1", ""),
            ("flush_all", ""),
            ("set a 0 0 1", "x"),
            ("mg a T30 v", ""),
            ("mg a v N0", ""),
            ("mg a R30", ""),
            ("mg a v h", ""),
            ("mg a l", ""),
            ("mg a E5", ""),
            ("mg a Z", ""),
            ("me a", ""),
            ("md a q", ""),
            ("ma a", ""),
            ("ms a 1 MA", "x"),
        ];
        for (text, value) in writes {
            let value = if value.is_empty() { String::new() } else { format!("{value}\r\n") };
            assert_eq!(kind(&format!("{text}\r\n{value}")), Access::Write, "{text}");
        }
        for text in ["version", "verbosity 1", "stats", "quit", "mn"] {
            assert_eq!(kind(&format!("{text}\r\n")), Access::Local, "{text}");
        }
    }

    #[test]
    fn a_read_and_a_write_are_under_way_together_only_on_one_connection() {
        let (read, write, local) = (Access::Read, Access::Write, Access::Local);
        let allowed = |overlap: Overlap| {
            [(read, read), (read, write), (write, read), (write, write)]
                .map(|(first, next)| overlap.allows(first, next))
        };
        assert_eq!(allowed(Overlap::All), [true, true, true, true]);
        assert_eq!(allowed(Overlap::SameKind), [true, false, false, true]);
        assert_eq!(allowed(Overlap::Reads), [true, false, false, false]);
        assert!(Overlap::Reads.allows(write, local) && Overlap::Reads.allows(local, write));
    }
}
