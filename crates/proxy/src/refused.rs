//! What a refused `set` leaves behind: nothing. memcached removes the old value when it refuses a new one, so that nobody goes on
//! reading what its writer meant to replace; a proxy that refuses a value by itself must have it removed.

use wire::{Meta, MetaFlags, Request, RequestError, Verb};

/// The deletion that goes with an error, if it is a `set` (or an `ms` that sets) whose value is too large. `line` is the
/// command without its value.
pub(crate) fn deletion<'l>(error: &RequestError, line: &'l [u8]) -> Option<Request<'l>> {
    if error.reason() != RequestError::ValueTooLarge {
        return None;
    }
    let mut words = line.split(|&byte| matches!(byte, b' ' | b'\r' | b'\n')).filter(|word| !word.is_empty());
    let (command, key) = (words.next()?, words.next()?);
    match command {
        b"set" => Some(Request::Delete { key, noreply: false }),
        b"ms" => {
            let sets = |word: &[u8]| !word.starts_with(b"M") || word.eq_ignore_ascii_case(b"MS");
            let mut is_base64 = false;
            for flag in words.skip(1) {
                is_base64 |= flag == b"b";
                if !sets(flag) {
                    return None;
                }
            }
            let flags = MetaFlags::new(if is_base64 { b"b" } else { b"" });
            Some(Request::Meta(Meta { verb: Verb::Md, key, flags, left_out: b"", value: b"" }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_to_be_replaced_is_deleted() {
        let asked = |line: &[u8]| {
            let mut bytes = Vec::new();
            deletion(&RequestError::ValueTooLarge, line)?.encode(&mut bytes);
            Some(String::from_utf8(bytes).unwrap())
        };
        assert_eq!(asked(b"set k 0 0 99999999\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(asked(b"set  k 0 0 99999999 noreply\r\n").as_deref(), Some("delete k\r\n"));
        assert_eq!(asked(b"ms k 99999999 T0 q\r\n").as_deref(), Some("md k\r\n"));
        assert_eq!(asked(b"ms a2s= 99999999 MS b\n").as_deref(), Some("md a2s= b\r\n"));
        for line in
            ["add k 0 0 99999999\r\n", "append k 0 0 99999999\r\n", "ms k 99999999 MA\r\n", "ms k 99999999 ME b\r\n"]
        {
            assert_eq!(asked(line.as_bytes()), None, "{line}");
        }
        assert_eq!(deletion(&RequestError::BadKey, b"set k 0 0 1\r\n"), None);
    }
}
