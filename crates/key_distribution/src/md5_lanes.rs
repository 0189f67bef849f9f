//! The first words of the MD5 digests of several short keys at once (R. Rivest, RFC 1321).
//!
//! Each key has a lane of the vector registers: the compiler makes vector instructions of the loop over the lanes. So the keys of a
//! multi-get need a third of the instructions that they need one after the other.

/// The number of keys that are hashed together: a vector register that every x86-64 and aarch64 CPU has holds four words.
pub(crate) const LANES: usize = 4;
/// The longest key that fits a block, with the mark of its end and its length.
const KEY_BYTES_MAX: usize = BLOCK_BYTES - 9;
const BLOCK_BYTES: usize = 64;
type Mix = fn(u32, u32, u32) -> u32;

const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// The first word of the digest of each key, low byte first. None if a key is longer than one block takes.
pub(crate) fn md5_words(keys: &[&[u8]; LANES]) -> Option<[u32; LANES]> {
    if keys.iter().any(|key| key.len() > KEY_BYTES_MAX) {
        return None;
    }
    let mut blocks = [[0; LANES]; BLOCK_BYTES / 4];
    for (lane, key) in keys.iter().enumerate() {
        let mut block = [0; BLOCK_BYTES];
        block[..key.len()].copy_from_slice(key);
        block[key.len()] = 0x80;
        block[BLOCK_BYTES - 8..].copy_from_slice(&(8 * key.len() as u64).to_le_bytes());
        for (words, bytes) in blocks.iter_mut().zip(block.as_chunks().0) {
            words[lane] = u32::from_le_bytes(*bytes);
        }
    }
    let mut digests = [0; LANES];
    for (lane, digest) in digests.iter_mut().enumerate() {
        *digest = first_word(|word| blocks[word][lane]);
    }
    Some(digests)
}

/// The first word of the digest of one block. It has no branches and no loops, so that a loop around it can be vectorised.
#[inline(always)]
fn first_word(word: impl Fn(usize) -> u32) -> u32 {
    let mut state = START;
    // Four of the 64 steps, after which each word of the state is in its place again.
    let mut four_steps = |mix: Mix, places: [usize; 4], constants: [u32; 4], shifts: [u32; 4]| {
        let [a, b, c, d] = state;
        let step = |a: u32, b: u32, c: u32, d: u32, index: usize| {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(word(places[index])).wrapping_add(constants[index]);
            sum.rotate_left(shifts[index]).wrapping_add(b)
        };
        let a = step(a, b, c, d, 0);
        let d = step(d, a, b, c, 1);
        let c = step(c, d, a, b, 2);
        let b = step(b, c, d, a, 3);
        state = [a, b, c, d];
    };
    // The functions F, G, H and I of the RFC; F and G with one operation less.
    let choose: Mix = |x, y, z| z ^ (x & (y ^ z));
    let choose_by_last: Mix = |x, y, z| y ^ (z & (x ^ y));
    let parity: Mix = |x, y, z| x ^ y ^ z;
    let last: Mix = |x, y, z| y ^ (x | !z);
    let shifts = [7, 12, 17, 22];
    four_steps(choose, [0, 1, 2, 3], [0xd76a_a478, 0xe8c7_b756, 0x2420_70db, 0xc1bd_ceee], shifts);
    four_steps(choose, [4, 5, 6, 7], [0xf57c_0faf, 0x4787_c62a, 0xa830_4613, 0xfd46_9501], shifts);
    four_steps(choose, [8, 9, 10, 11], [0x6980_98d8, 0x8b44_f7af, 0xffff_5bb1, 0x895c_d7be], shifts);
    four_steps(choose, [12, 13, 14, 15], [0x6b90_1122, 0xfd98_7193, 0xa679_438e, 0x49b4_0821], shifts);
    let shifts = [5, 9, 14, 20];
    four_steps(choose_by_last, [1, 6, 11, 0], [0xf61e_2562, 0xc040_b340, 0x265e_5a51, 0xe9b6_c7aa], shifts);
    four_steps(choose_by_last, [5, 10, 15, 4], [0xd62f_105d, 0x0244_1453, 0xd8a1_e681, 0xe7d3_fbc8], shifts);
    four_steps(choose_by_last, [9, 14, 3, 8], [0x21e1_cde6, 0xc337_07d6, 0xf4d5_0d87, 0x455a_14ed], shifts);
    four_steps(choose_by_last, [13, 2, 7, 12], [0xa9e3_e905, 0xfcef_a3f8, 0x676f_02d9, 0x8d2a_4c8a], shifts);
    let shifts = [4, 11, 16, 23];
    four_steps(parity, [5, 8, 11, 14], [0xfffa_3942, 0x8771_f681, 0x6d9d_6122, 0xfde5_380c], shifts);
    four_steps(parity, [1, 4, 7, 10], [0xa4be_ea44, 0x4bde_cfa9, 0xf6bb_4b60, 0xbebf_bc70], shifts);
    four_steps(parity, [13, 0, 3, 6], [0x289b_7ec6, 0xeaa1_27fa, 0xd4ef_3085, 0x0488_1d05], shifts);
    four_steps(parity, [9, 12, 15, 2], [0xd9d4_d039, 0xe6db_99e5, 0x1fa2_7cf8, 0xc4ac_5665], shifts);
    let shifts = [6, 10, 15, 21];
    four_steps(last, [0, 7, 14, 5], [0xf429_2244, 0x432a_ff97, 0xab94_23a7, 0xfc93_a039], shifts);
    four_steps(last, [12, 3, 10, 1], [0x655b_59c3, 0x8f0c_cc92, 0xffef_f47d, 0x8584_5dd1], shifts);
    four_steps(last, [8, 15, 6, 13], [0x6fa8_7e4f, 0xfe2c_e6e0, 0xa301_4314, 0x4e08_11a1], shifts);
    four_steps(last, [4, 11, 2, 9], [0xf753_7e82, 0xbd3a_f235, 0x2ad7_d2bb, 0xeb86_d391], shifts);
    state[0].wrapping_add(START[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::md5_word;

    #[test]
    fn words_of_several_keys_are_those_of_each_key() {
        let bytes: Vec<u8> = (0..=255).collect();
        for length in 0..=KEY_BYTES_MAX {
            let keys = [&bytes[..length], &bytes[200..][..length], b"abc", &bytes[..KEY_BYTES_MAX - length]];
            assert_eq!(md5_words(&keys), Some(keys.map(md5_word)), "{length}");
        }
        assert_eq!(md5_words(&[b"", b"", b"", &bytes[..=KEY_BYTES_MAX]]), None);
    }
}
