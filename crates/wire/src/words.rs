//! Splits a line into words. Only the space separates words; every other byte can be part of a key.

use memchr::{memchr, memrchr};

/// An iterator over the words of a line.
#[derive(Clone, Debug)]
pub(crate) struct Words<'a> {
    rest: &'a [u8],
}

/// The words of a short line. A line with more words than any command takes is recognised by its count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordList<'a> {
    words: [&'a [u8]; WORDS_MAXIMUM],
    count: usize,
}

/// One more than the arguments of `cas` with `noreply`, the command with the most words.
const WORDS_MAXIMUM: usize = 7;

/// So many bytes are searched for a space eight at a time. Most words are short, and a call of `memchr` costs as much as this search.
const NEAR_BYTES: usize = 32;

impl<'a> Words<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Words<'a> {
        Words { rest: skip_spaces(bytes) }
    }

    /// The rest of the line, from the start of the next word.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.rest.is_empty() {
            return None;
        }
        let (word, rest) = self.rest.split_at(find_space(self.rest).unwrap_or(self.rest.len()));
        self.rest = skip_spaces(rest);
        Some(word)
    }
}

impl<'a> WordList<'a> {
    pub(crate) fn new(words: Words<'a>) -> WordList<'a> {
        let mut list = WordList { words: [&[]; WORDS_MAXIMUM], count: 0 };
        for (place, word) in list.words.iter_mut().zip(words) {
            *place = word;
            list.count += 1;
        }
        list
    }

    /// The number of words, at most the capacity of the list.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The word at this index, or an empty one.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        self.words.get(index).copied().unwrap_or_default()
    }

    /// Whether the last word is `noreply`.
    pub(crate) fn ends_with_noreply(&self) -> bool {
        self.count > 0 && self.get(self.count - 1) == b"noreply"
    }
}

/// The offset of the first space.
pub(crate) fn find_space(bytes: &[u8]) -> Option<usize> {
    let (near, far) = bytes.split_at(bytes.len().min(NEAR_BYTES));
    let (chunks, rest) = near.as_chunks();
    for (number, chunk) in chunks.iter().enumerate() {
        if let Some(at) = find_space_of_8(*chunk) {
            return Some(8 * number + at);
        }
    }
    if far.is_empty() {
        return rest.iter().position(|&byte| byte == b' ').map(|at| 8 * chunks.len() + at);
    }
    memchr(b' ', far).map(|at| NEAR_BYTES + at)
}

/// The same for eight bytes. A byte without a bit is found by the borrow of a subtraction (Warren, Hacker's Delight, 6-1). Only bytes
/// behind the first one can be found by mistake.
fn find_space_of_8(bytes: [u8; 8]) -> Option<usize> {
    let differs = u64::from_le_bytes(bytes) ^ u64::from_le_bytes([b' '; 8]);
    let found = differs.wrapping_sub(u64::from_le_bytes([0x01; 8])) & !differs & u64::from_le_bytes([0x80; 8]);
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

/// Whether a word is longer than this. Of so many bytes, only the last space is searched, so that most words are not looked at.
pub(crate) fn has_longer_word(mut bytes: &[u8], length_max: usize) -> bool {
    while bytes.len() > length_max {
        let Some(at) = memrchr(b' ', &bytes[..=length_max]) else { return true };
        bytes = &bytes[at + 1..];
    }
    false
}

/// The bytes without leading spaces.
pub(crate) fn skip_spaces(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().take_while(|&&byte| byte == b' ').count();
    &bytes[spaces..]
}

/// The bytes without trailing spaces.
pub(crate) fn trim_end_spaces(bytes: &[u8]) -> &[u8] {
    let spaces = bytes.iter().rev().take_while(|&&byte| byte == b' ').count();
    &bytes[..bytes.len() - spaces]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_spaces_separate() {
        let mut words = Words::new(b"  a\tb  c\0d ");
        assert_eq!(words.next(), Some(&b"a\tb"[..]));
        assert_eq!(words.rest(), b"c\0d ");
        assert_eq!((words.next(), words.next()), (Some(&b"c\0d"[..]), None));
    }

    #[test]
    fn a_space_is_found_at_every_distance() {
        for byte in [b'x', b'!', 0x00, 0x1f, 0xa0, 0xff] {
            for length in 0..3 * NEAR_BYTES {
                let word = vec![byte; length];
                for behind in [&b""[..], b"y", b" !", b"! y z and more"] {
                    let line = [&word, &b" "[..], behind].concat();
                    assert_eq!(find_space(&line), Some(length), "{byte}, {behind:?}");
                }
                assert_eq!(find_space(&word), None);
            }
        }
    }

    proptest! {
        #[test]
        fn a_long_word_is_found_wherever_it_is(line in "([a-z]{1,10} {1,3}){0,6}[a-z]{0,10}", length_max in 1usize..9) {
            let expected = Words::new(line.as_bytes()).any(|word| word.len() > length_max);
            prop_assert_eq!(has_longer_word(line.as_bytes(), length_max), expected);
        }
    }

    #[test]
    fn words_beyond_the_capacity_are_dropped() {
        let list = WordList::new(Words::new(b"1 2 3 4 5 6 7 8 noreply"));
        assert_eq!((list.count(), list.get(6), list.get(7)), (7, &b"7"[..], &b""[..]));
        assert!(!list.ends_with_noreply());
        assert!(WordList::new(Words::new(b"k noreply ")).ends_with_noreply());
    }
}
