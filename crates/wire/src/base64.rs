//! Base64 as memcached reads and writes it: characters outside the alphabet are skipped, and text after the first padding
//! is ignored. Decoding is as lenient as memcached's, because a key must mean the same here as on the server.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PADDING: u8 = b'=';
/// The value of a byte outside the alphabet.
const NO_LETTER: u8 = 0xff;
/// The value of each byte; padding has the value 0.
const VALUES: [u8; 256] = values();

const fn values() -> [u8; 256] {
    let mut values = [NO_LETTER; 256];
    let mut index = 0;
    while index < LETTERS.len() {
        values[LETTERS[index] as usize] = index as u8;
        index += 1;
    }
    values[PADDING as usize] = 0;
    values
}

/// Decodes `text` into `buffer`; `None` if memcached could not decode it or it does not fit.
pub fn decode_base64<'b>(text: &[u8], buffer: &'b mut [u8]) -> Option<&'b [u8]> {
    let letters = || text.iter().filter(|&&byte| VALUES[byte as usize] != NO_LETTER);
    let count = letters().count();
    if count == 0 || count % 4 != 0 {
        return None;
    }
    let (mut filled, mut block, mut in_block, mut padding) = (0, 0u32, 0, 0);
    for &letter in letters() {
        padding += usize::from(letter == PADDING);
        block = block << 6 | u32::from(VALUES[letter as usize]);
        in_block += 1;
        if in_block < 4 {
            continue;
        }
        // A block with more than two padding characters contains no data.
        let decoded = 3usize.checked_sub(padding).filter(|&decoded| decoded > 0)?;
        buffer.get_mut(filled..filled + decoded)?.copy_from_slice(&block.to_be_bytes()[1..=decoded]);
        filled += decoded;
        if padding > 0 {
            break;
        }
        (block, in_block) = (0, 0);
    }
    Some(&buffer[..filled])
}

/// Appends `bytes` in base64, padded.
pub fn encode_base64(bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(3) {
        let mut block = [0; 4];
        block[1..=piece.len()].copy_from_slice(piece);
        let block = u32::from_be_bytes(block);
        for place in 0..4 {
            let letter = LETTERS[(block >> (18 - 6 * place) & 0x3f) as usize];
            out.push(if place <= piece.len() { letter } else { PADDING });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(text: &[u8]) -> Option<Vec<u8>> {
        decode_base64(text, &mut [0; 250]).map(<[u8]>::to_vec)
    }

    /// The results that memcached 1.6.18 returned for these keys.
    #[test]
    fn decoding_is_memcacheds() {
        for (text, expected) in [
            (&b"Zm9v"[..], Some(&b"foo"[..])),
            (b"Zm9vZg==", Some(b"foof")),
            (b"Zm9v!", Some(b"foo")),
            (b"Z!m9v", Some(b"foo")),
            (b"Zg==Zm9v", Some(b"f")),
            (b"Zm9v=m9v", Some(b"foo\x02o")),
            (b"Zm9", None),
            (b"Zm", None),
            (b"====", None),
            (b"Z===", None),
            (b"!", None),
            (b"", None),
        ] {
            assert_eq!(decoded(text).as_deref(), expected, "{}", text.escape_ascii());
        }
        assert_eq!(decode_base64(b"Zm9v", &mut [0; 2]), None);
    }

    proptest! {
        #[test]
        fn encoding_and_decoding_are_inverse(bytes in proptest::collection::vec(any::<u8>(), 1..180)) {
            let mut text = Vec::new();
            encode_base64(&bytes, &mut text);
            prop_assert_eq!(text.len(), bytes.len().div_ceil(3) * 4);
            prop_assert_eq!(decoded(&text), Some(bytes));
        }
    }
}
