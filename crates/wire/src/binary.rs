//! memcached's binary protocol, as far as is needed to refuse it: recognises a request and encodes an error that clients of this protocol
//! can read.

/// The first byte of every request. No command of the text protocol begins with it.
const REQUEST: u8 = 0x80;
/// The first byte of every response.
const RESPONSE: u8 = 0x81;
/// The status "not supported".
const NOT_SUPPORTED: u16 = 0x83;
/// The bytes of a header: magic, opcode, key length (2), extras length, data type, status (2), body length (4), opaque (4), cas (8).
const HEADER_BYTES: usize = 24;
/// The place of the opaque, which a response repeats.
const OPAQUE: std::ops::Range<usize> = 12..16;

/// What the first bytes of a connection are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FirstBytes {
    /// They begin a command of the text protocol.
    Text,
    /// They begin a request of the binary protocol, whose header has not arrived completely.
    Incomplete,
    /// They are a request of the binary protocol. These bytes refuse it.
    Binary {
        /// A response with the status "not supported" and this text.
        refusal: Vec<u8>,
    },
}

/// Tells the binary protocol from the text protocol by the first bytes of a connection, of which there is at least one. `reason` is the
/// text of the refusal.
pub fn first_bytes(bytes: &[u8], reason: &str) -> FirstBytes {
    if bytes.first() != Some(&REQUEST) {
        return FirstBytes::Text;
    }
    let Some(header) = bytes.get(..HEADER_BYTES) else { return FirstBytes::Incomplete };
    let mut refusal = vec![RESPONSE, header[1], 0, 0, 0, 0];
    refusal.extend_from_slice(&NOT_SUPPORTED.to_be_bytes());
    refusal.extend_from_slice(&(reason.len() as u32).to_be_bytes());
    refusal.extend_from_slice(&header[OPAQUE]);
    refusal.resize(HEADER_BYTES, 0);
    refusal.extend_from_slice(reason.as_bytes());
    FirstBytes::Binary { refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_request_is_refused_with_its_opcode_and_opaque() {
        let mut request = vec![0x80, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef];
        request.resize(24, 7);
        for arrived in 1..24 {
            assert_eq!(first_bytes(&request[..arrived], "no"), FirstBytes::Incomplete);
        }
        let mut expected = vec![0x81, 0x0b, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, 2, 0xde, 0xad, 0xbe, 0xef];
        expected.extend_from_slice(b"\0\0\0\0\0\0\0\0no");
        request.extend_from_slice(b"a key, and more requests");
        assert_eq!(first_bytes(&request, "no"), FirstBytes::Binary { refusal: expected });
    }

    #[test]
    fn all_other_bytes_are_text() {
        for first in (0..=255u8).filter(|&first| first != 0x80) {
            assert_eq!(first_bytes(&[first, 0x80], "no"), FirstBytes::Text);
        }
    }
}
