//! Keys, from the bytes that a terminal sends. crossterm's reader of keys is not used: it never returns if the terminal goes away.

/// A key with a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    End,
    Stop,
    Switch,
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
}

const ESCAPE: u8 = 0x1b;
/// What Ctrl-C and Ctrl-Z send in raw mode.
const CONTROL_C: u8 = 3;
const CONTROL_Z: u8 = 26;
/// The longest sequence of a key.
const SEQUENCE_MAX: usize = 16;

/// Takes the keys out of the bytes that have arrived. The beginning of a sequence stays for its rest.
pub(crate) fn take_keys(bytes: &mut Vec<u8>) -> Vec<Key> {
    let (mut keys, mut at) = (Vec::new(), 0);
    while let Some((key, length)) = first_key(&bytes[at..]) {
        keys.extend(key);
        at += length;
    }
    bytes.drain(..at);
    keys
}

/// The first key, if it has a meaning, and the number of its bytes. None if its rest is missing.
fn first_key(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match *bytes {
        [] | [ESCAPE] => None,
        [ESCAPE, b'[' | b'O', ref rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
            match end {
                Some(end) => Some((sequence(&rest[..end], rest[end]), end + 3)),
                None if rest.len() < SEQUENCE_MAX => None,
                None => Some((None, bytes.len())),
            }
        }
        [ESCAPE, ..] => Some((None, 2)),
        [byte, ..] => Some((character(byte), 1)),
    }
}

fn sequence(parameters: &[u8], end: u8) -> Option<Key> {
    match (parameters, end) {
        (b"", b'A') => Some(Key::Up),
        (b"", b'B') => Some(Key::Down),
        (b"", b'C') => Some(Key::Right),
        (b"", b'D') => Some(Key::Left),
        (b"", b'H') | (b"1" | b"7", b'~') => Some(Key::Home),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

fn character(byte: u8) -> Option<Key> {
    match byte {
        b'q' | CONTROL_C => Some(Key::End),
        CONTROL_Z => Some(Key::Stop),
        b's' => Some(Key::Switch),
        b'k' => Some(Key::Up),
        b'j' => Some(Key::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_any_pieces() {
        let sent = b"s\x1b[A\x1bOB\x1b[5~x\xc3\xa4\x1bq\x1b[1;5C\x1b[6~\x1b[1~\x1b[C\x1b[D\x1aq\x03";
        let expected = [
            Key::Switch,
            Key::Up,
            Key::Down,
            Key::PageUp,
            Key::PageDown,
            Key::Home,
            Key::Right,
            Key::Left,
            Key::Stop,
            Key::End,
            Key::End,
        ];
        for piece in [1, 2, 3, 100] {
            let (mut bytes, mut keys) = (Vec::new(), Vec::new());
            for some in sent.chunks(piece) {
                bytes.extend_from_slice(some);
                keys.extend(take_keys(&mut bytes));
            }
            assert_eq!(keys, expected, "in pieces of {piece}");
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn an_endless_sequence_is_dropped() {
        let mut bytes = b"\x1b[".to_vec();
        bytes.extend([b'1'; 100]);
        assert_eq!((take_keys(&mut bytes), bytes.len()), (vec![], 0));
        let mut escape = vec![ESCAPE];
        assert_eq!((take_keys(&mut escape), escape.len()), (vec![], 1));
    }
}
