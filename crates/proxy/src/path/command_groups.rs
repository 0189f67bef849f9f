//! The groups of commands that a request belongs to. A listener must allow all of them. A request that belongs to none, such as
//! `version`, is always allowed.

use crate::config::{CommandGroup, Commands};
use wire::{Meta, Request, Verb};

/// Flags with which `mg` changes nothing, apart from the statistics of the item. With `T` it touches, with `N` it creates, and with
/// `R` the client wins the right to store a value. Flags that are unknown here are assumed to change something.
const READING: &[u8] = b"bkvqOstfcuhlPL";

/// The groups of a request.
pub(crate) fn groups_of(request: &Request<'_>) -> Commands {
    match request {
        Request::Meta(meta) if meta.verb == Verb::Mg => groups_of_get(meta),
        _ => groups_of_verb(request.verb()),
    }
}

/// The groups of a command; of `mg` without flags that change something.
pub(crate) fn groups_of_verb(verb: Verb) -> Commands {
    let only = |group| Commands::NONE.with(group);
    match verb {
        Verb::Get | Verb::Gets | Verb::Mg | Verb::Me => only(CommandGroup::Read),
        Verb::Gat | Verb::Gats => only(CommandGroup::Read).with(CommandGroup::Touch),
        Verb::Touch => only(CommandGroup::Touch),
        Verb::Set | Verb::Add | Verb::Replace | Verb::Append | Verb::Prepend | Verb::Cas => only(CommandGroup::Write),
        Verb::Incr | Verb::Decr | Verb::Ms | Verb::Ma => only(CommandGroup::Write),
        Verb::Delete | Verb::Md => only(CommandGroup::Delete),
        Verb::FlushAll => only(CommandGroup::Flush),
        Verb::Stats => only(CommandGroup::Stats),
        Verb::Version | Verb::Verbosity | Verb::Quit | Verb::Mn | Verb::Other | Verb::Invalid => Commands::NONE,
    }
}

fn groups_of_get(meta: &Meta<'_>) -> Commands {
    meta.flags.iter().fold(groups_of_verb(Verb::Mg), |groups, flag| match flag[0] {
        b'T' => groups.with(CommandGroup::Touch),
        letter if READING.contains(&letter) => groups,
        _ => groups.with(CommandGroup::Write),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Limits, ParsedRequest, parse_request};

    #[test]
    fn a_command_is_in_the_groups_of_what_it_does() {
        for (texts, expected) in [
            (&["get a", "gets a b", "mg a", "mg a v k h l q O1", "mg YQ== b s t f c u", "me a"][..], "read"),
            (&["gat 0 a", "gats 5 a b", "mg a T30 v"], "read touch"),
            (&["touch a 5"], "touch"),
            (&["mg a N30", "mg a v R30", "mg a E5", "mg a Z"], "read write"),
            (&["mg a v N5 T6"], "read touch write"),
            (&["set a 0 0 1", "add a 0 0 1", "append a 0 0 1", "prepend a 0 0 1", "replace a 0 0 1"], "write"),
            (&["cas a 0 0 1 7", "ms a 1", "ms a 1 MA q", "ms a 1 I T0", "incr a 1", "decr a 1", "ma a N0 J5"], "write"),
            (&["delete a", "md a", "md a I T30", "md a q C5"], "delete"),
            (&["flush_all", "flush_all 10 noreply"], "flush"),
            (&["stats", "stats reset"], "stats"),
            (&["version", "verbosity 1", "mn", "quit"], ""),
        ] {
            for text in texts {
                let bytes = format!("{text}\r\nx\r\n");
                let ParsedRequest::Request { request, .. } = parse_request(bytes.as_bytes(), &Limits::default()) else {
                    panic!("{text}");
                };
                let names: Vec<&str> = groups_of(&request).names().collect();
                assert_eq!(names.join(" "), expected, "{text}");
            }
        }
    }
}
