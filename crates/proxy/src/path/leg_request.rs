//! The request that one leg's backend receives: the client's command without `noreply`, its part of a multi-get, or the command
//! that keeps another backend consistent.

use crate::path::job::LegCommand;
use crate::path::meta;
use std::borrow::Cow;
use wire::{KEY_BYTES_MAXIMUM, KeyBuffer, Limits, Meta, MetaFlags, ParsedRequest, Request, Verb, parse_request};

/// The longest relative expiry time. memcached reads a larger number as a Unix time.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// Whether a command is counted as a read.
pub(crate) fn is_read(verb: Verb) -> bool {
    matches!(verb, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg | Verb::Me)
}

/// Whether a command deletes a value. Then it is also sent to the other pools that receive deletes.
pub(crate) fn deletes(verb: Verb) -> bool {
    matches!(verb, Verb::Delete | Verb::Md)
}

/// Whether a command stores a complete value.
pub(crate) fn stores_value(verb: Verb) -> bool {
    matches!(verb, Verb::Set | Verb::Add | Verb::Replace | Verb::Cas | Verb::Ms)
}

/// The first key of a request. That of a meta command is decoded into `decoded`, which is filled for these only: filling it takes longer
/// than finding the key of another command.
pub(crate) fn first_key<'k>(request: &Request<'k>, decoded: &'k mut Option<KeyBuffer>) -> Option<&'k [u8]> {
    match request {
        Request::Meta(meta) => Some(meta.stored_key(decoded.insert([0; KEY_BYTES_MAXIMUM]))),
        _ => request.key(),
    }
}

/// The limits within which the proxy parses requests that it has encoded itself.
pub(crate) fn own_limits() -> Limits {
    Limits { value_bytes: usize::MAX / 2, ..Limits::default() }
}

/// The request for a leg with this command. The proxy never forwards `noreply`: it waits for every backend reply. A part of a
/// multi-get is encoded from the keys of the job instead.
pub(crate) fn leg_request<'q, 'r>(request: &'q Request<'r>, command: LegCommand) -> Cow<'q, Request<'r>> {
    let changed = match (request, command) {
        (Request::Meta(meta), _) => meta::leg_request(meta, command),
        (_, LegCommand::Delete) => Request::Delete { key: request.key().unwrap_or_default(), noreply: false },
        (Request::Get { exptime, .. }, LegCommand::Touch) => {
            Request::Touch { key: request.key().unwrap_or_default(), exptime: *exptime, noreply: false }
        }
        (&Request::Store { verb, key, flags, exptime, value, cas, .. }, LegCommand::CapExpiry { seconds }) => {
            let exptime = capped(exptime, seconds, unix_seconds);
            Request::Store { verb, key, flags, exptime, value, cas, noreply: false }
        }
        (&Request::Touch { key, exptime, .. }, LegCommand::CapExpiry { seconds }) => {
            Request::Touch { key, exptime: capped(exptime, seconds, unix_seconds), noreply: false }
        }
        _ => return request.without_noreply(),
    };
    Cow::Owned(changed)
}

/// Rewrites an encoded meta command so that the value it stores lives at most `seconds`. Text commands have the expiry time in a
/// field of its own, which `leg_request` caps.
pub(crate) fn cap_meta(kept: &mut Vec<u8>, seconds: u32) {
    let ParsedRequest::Request { request: Request::Meta(meta), .. } = parse_request(kept, &own_limits()) else {
        return;
    };
    let flags = meta::capped_flags(&meta, |exptime| capped(exptime, seconds, unix_seconds));
    let mut bytes = Vec::with_capacity(kept.len() + flags.len());
    Request::Meta(Meta { flags: MetaFlags::new(&flags), ..meta }).encode(&mut bytes);
    *kept = bytes;
}

/// An expiry time at most `seconds` from now. One that has passed is -1: of a longer number, memcached uses the last 32 bits, which can
/// be 0. A Unix time is compared with the proxy's clock.
fn capped(exptime: i64, seconds: u32, unix_seconds: impl Fn() -> i64) -> i64 {
    let most = i64::from(seconds).min(RELATIVE_MAX);
    match exptime {
        ..0 => -1,
        0 => most,
        1..=RELATIVE_MAX => exptime.min(most),
        _ => match exptime.saturating_sub(unix_seconds()) {
            left @ 1.. => left.min(most),
            _ => -1,
        },
    }
}

fn unix_seconds() -> i64 {
    (clock::unix_now() / 1_000_000_000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_the_failover_pool_lives_at_most_as_long_as_configured() {
        const NOW: i64 = 2_000_000_000;
        let exptimes = [
            (0, 60),
            (30, 30),
            (61, 60),
            (-1, -1),
            (-4_294_967_296, -1),
            (-2_147_483_649, -1),
            (NOW + 3600, 60),
            (NOW + 5, 5),
            (NOW, -1),
            (2_592_001, -1),
            (i64::MAX, 60),
        ];
        for (exptime, expected) in exptimes {
            assert_eq!(capped(exptime, 60, || NOW), expected, "{exptime}");
        }
        assert_eq!(capped(0, u32::MAX, || NOW), 2_592_000);
        let mut kept = b"ms a2V5 2 b O1\r\nhi\r\n".to_vec();
        cap_meta(&mut kept, 60);
        assert_eq!(String::from_utf8(kept).unwrap(), "ms a2V5 2 b O1 T60\r\nhi\r\n");
        let mut kept = b"touch k 0\r\n".to_vec();
        cap_meta(&mut kept, 60);
        let ParsedRequest::Request { request, .. } = parse_request(&kept, &Limits::default()) else { panic!() };
        let capped = leg_request(&request, LegCommand::CapExpiry { seconds: 60 });
        assert!(matches!(*capped, Request::Touch { exptime: 60, .. }));
    }
}
