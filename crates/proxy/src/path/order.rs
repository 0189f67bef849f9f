//! Which requests of one client may be in flight at the same time, so that none overtakes an earlier one that it depends on.
//!
//! A client that sends `set` and then `get` of one key without waiting must receive the new value. On one connection the order
//! is kept anyway. If the two may use different connections, the session blocks the later request until the earlier one is
//! answered (docs/decisions/0011-dispatch-disciplines.md).

use crate::config::Discipline;
use crate::path::meta;
use wire::{Request, Verb};

/// A read with a larger reply is a bulk read.
const BULK_BYTES: usize = 256 * 1024;

/// How a request may conflict with other requests of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The proxy replies itself.
    Local,
    /// It changes nothing.
    Read,
    /// It changes nothing, and its reply is expected to be large: it may use another connection than the client's other requests.
    BulkRead,
    /// It may change something, as `gat` also does. Or its reply depends on earlier reads, as that of `me` does.
    Write,
    /// A write that needs the old value, or `flush_all`. The value may have to be read from the warm-up pool first, and such a write
    /// may fail over earlier than others. An earlier write must not fail over after a `flush_all`.
    WriteAlone,
}

/// Which requests of one client may be in flight together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// All: one connection keeps them in order.
    All,
    /// Reads together with reads, and writes together with writes. A backend receives all of them on one connection, or reads
    /// on other connections than writes.
    SameAccess { on_one_connection: bool },
    /// Reads only.
    Reads,
}

impl Access {
    /// The access of a request.
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

    /// The access of this request if there is a warm-up or failover pool: no other write may take effect between its steps, and it
    /// must not fail over before an earlier write. A write must not fail over after a later `flush_all`.
    pub(crate) fn with_steps(self, request: &Request<'_>) -> Access {
        let overwrites = match request {
            Request::Meta(meta) => meta::overwrites(meta),
            _ => matches!(request.verb(), Verb::Set | Verb::Delete),
        };
        if self == Access::Write && !overwrites { Access::WriteAlone } else { self }
    }

    /// The access of a request whose reply is expected to have this many bytes.
    pub(crate) fn expecting(self, reply_bytes: usize, overlap: Overlap) -> Access {
        let is_bulk = self == Access::Read && reply_bytes > BULK_BYTES && overlap.has_bulk_connections();
        if is_bulk { Access::BulkRead } else { self }
    }
}

impl Overlap {
    /// Whether large replies have connections of their own. Only `pipelined` needs them: in the other disciplines, a large reply
    /// delays no other read for longer than a request is served.
    fn has_bulk_connections(self) -> bool {
        matches!(self, Overlap::All | Overlap::SameAccess { on_one_connection: true })
    }

    /// The requests that this discipline keeps in order by itself may overlap. There are fewer if reads may go to other replicas
    /// than the primary.
    pub(crate) fn of(discipline: Discipline, only_primaries_are_read: bool) -> Overlap {
        match discipline {
            Discipline::Pipelined if only_primaries_are_read => Overlap::All,
            Discipline::Pipelined => Overlap::SameAccess { on_one_connection: true },
            // A write of several keys waits for one of their writers, and could be overtaken by a write that waits for another.
            Discipline::PerBackend { fault_write_poll: Some(_), .. } => Overlap::Reads,
            Discipline::PerBackend { .. } => Overlap::SameAccess { on_one_connection: false },
            Discipline::Shared { .. } => Overlap::Reads,
        }
    }

    /// Whether a request may be sent while other requests of its client are in flight.
    pub(crate) fn allows(self, in_flight: Access, next: Access) -> bool {
        match self {
            _ if in_flight == Access::Local || next == Access::Local => true,
            _ if in_flight == Access::WriteAlone || next == Access::WriteAlone => false,
            _ if in_flight == Access::BulkRead || next == Access::BulkRead => in_flight == next,
            Overlap::All => true,
            Overlap::SameAccess { .. } => in_flight == next,
            Overlap::Reads => in_flight == Access::Read && next == Access::Read,
        }
    }

    /// Whether a request must wait until every replica has answered the earlier writes of its client, although the client has
    /// received their replies: it could overtake such a write on another connection.
    pub(crate) fn waits_for_late_writes(self, next: Access) -> bool {
        match self {
            _ if next == Access::BulkRead => true,
            // With `shared`, every write waits for all replicas anyway.
            Overlap::SameAccess { on_one_connection: false } | Overlap::Reads => next == Access::Read,
            // One connection keeps them in order.
            Overlap::All | Overlap::SameAccess { on_one_connection: true } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Limits, ParsedRequest, parse_request};

    fn access(text: &str) -> Access {
        match parse_request(text.as_bytes(), &Limits::default()) {
            ParsedRequest::Request { request, .. } => Access::of(&request),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn commands_are_classified_as_reads_writes_or_local() {
        for text in ["get a", "gets a b", "mg a", "mg a v q", "mg YQ== b v k O1 s t f c u"] {
            assert_eq!(access(&format!("{text}\r\n")), Access::Read, "{text}");
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
            assert_eq!(access(&format!("{text}\r\n{value}")), Access::Write, "{text}");
        }
        for text in ["version", "verbosity 1", "stats", "quit", "mn"] {
            assert_eq!(access(&format!("{text}\r\n")), Access::Local, "{text}");
        }
    }

    #[test]
    fn a_write_that_needs_a_value_is_in_flight_alone_if_writes_have_steps() {
        let with_steps = |text: &str| match parse_request(text.as_bytes(), &Limits::default()) {
            ParsedRequest::Request { request, .. } => Access::of(&request).with_steps(&request),
            other => panic!("{text}: {other:?}"),
        };
        for text in [
            "touch a 1",
            "gat 1 a",
            "incr a 1",
            "add a 0 0 1\r\nx",
            "mg a T1",
            "ma a",
            "md a I",
            "ms a 1 ME\r\nx",
            "flush_all",
        ] {
            assert_eq!(with_steps(&format!("{text}\r\n")), Access::WriteAlone, "{text}");
        }
        for text in ["set a 0 0 1\r\nx", "delete a", "ms a 1\r\nx", "md a q"] {
            assert_eq!(with_steps(&format!("{text}\r\n")), Access::Write, "{text}");
        }
        assert_eq!((with_steps("gets a\r\n"), with_steps("version\r\n")), (Access::Read, Access::Local));
        let alone =
            |next| Overlap::All.allows(Access::WriteAlone, next) || Overlap::All.allows(next, Access::WriteAlone);
        assert!(![Access::Read, Access::Write, Access::WriteAlone, Access::BulkRead].into_iter().any(alone));
        assert!(alone(Access::Local));
    }

    #[test]
    fn a_read_and_a_write_are_in_flight_together_only_on_one_connection() {
        let (read, write, local) = (Access::Read, Access::Write, Access::Local);
        let allowed = |overlap: Overlap| {
            [(read, read), (read, write), (write, read), (write, write)]
                .map(|(first, next)| overlap.allows(first, next))
        };
        assert_eq!(allowed(Overlap::All), [true, true, true, true]);
        for on_one_connection in [true, false] {
            assert_eq!(allowed(Overlap::SameAccess { on_one_connection }), [true, false, false, true]);
        }
        assert_eq!(allowed(Overlap::Reads), [true, false, false, false]);
        let pipelined = [Overlap::All, Overlap::SameAccess { on_one_connection: true }];
        for overlap in pipelined {
            let bulk = read.expecting(BULK_BYTES + 1, overlap);
            assert_eq!(bulk, Access::BulkRead);
            let both = |other| overlap.allows(bulk, other) || overlap.allows(other, bulk);
            assert_eq!([read, write, bulk, local].map(both), [false, false, true, true]);
            assert!(overlap.waits_for_late_writes(bulk));
            assert_eq!([read.expecting(BULK_BYTES, overlap), write.expecting(usize::MAX, overlap)], [read, write]);
        }
        assert_eq!(read.expecting(usize::MAX, Overlap::Reads), read);
        let waits = |overlap: Overlap| [read, write, local].map(|next| overlap.waits_for_late_writes(next));
        assert_eq!(waits(Overlap::All), [false; 3]);
        assert_eq!(waits(Overlap::SameAccess { on_one_connection: true }), [false; 3]);
        assert_eq!(waits(Overlap::SameAccess { on_one_connection: false }), [true, false, false]);
        assert_eq!(waits(Overlap::Reads), [true, false, false]);
        assert!(Overlap::Reads.allows(write, local) && Overlap::Reads.allows(local, write));
    }
}
