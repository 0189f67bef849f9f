//! The flags of a meta command, as a view of the received bytes. A flag is a letter with an optional argument.
//! Knows the meaning of no flag; the server interprets them.

use crate::words::{Words, skip_spaces};

/// Flags separated by spaces, as they were received.
#[derive(Clone, Copy, Default)]
pub struct MetaFlags<'a> {
    bytes: &'a [u8],
}

impl<'a> MetaFlags<'a> {
    /// The flags in `bytes`, which are separated by one or more spaces.
    pub fn new(bytes: &'a [u8]) -> MetaFlags<'a> {
        MetaFlags { bytes: skip_spaces(bytes) }
    }

    /// The flags with their arguments, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Words::new(self.bytes)
    }

    /// The number of flags.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// The number of flags with this letter.
    pub fn count_of(&self, letter: u8) -> usize {
        self.iter().filter(|flag| flag[0] == letter).count()
    }

    /// Whether there is a flag with this letter.
    pub fn has(&self, letter: u8) -> bool {
        self.argument(letter).is_some()
    }

    /// The argument of the first flag with this letter.
    pub fn argument(&self, letter: u8) -> Option<&'a [u8]> {
        self.iter().find(|flag| flag[0] == letter).map(|flag| &flag[1..])
    }
}

impl PartialEq for MetaFlags<'_> {
    /// The number of spaces between the flags does not matter.
    fn eq(&self, other: &MetaFlags<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for MetaFlags<'_> {}

impl std::fmt::Debug for MetaFlags<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter().map(|flag| String::from_utf8_lossy(flag).into_owned())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_a_letter_and_perhaps_an_argument() {
        let flags = MetaFlags::new(b"  v T30  Oabc k O ");
        assert_eq!(flags.iter().collect::<Vec<_>>(), [&b"v"[..], b"T30", b"Oabc", b"k", b"O"]);
        assert_eq!((flags.count(), flags.count_of(b'O'), flags.count_of(b'q')), (5, 2, 0));
        assert_eq!((flags.argument(b'T'), flags.argument(b'O')), (Some(&b"30"[..]), Some(&b"abc"[..])));
        assert_eq!((flags.argument(b'v'), flags.argument(b'c')), (Some(&b""[..]), None));
        assert!(flags.has(b'k') && !flags.has(b'3'));
        assert_eq!(flags, MetaFlags::new(b"v T30 Oabc k O"));
        assert_ne!(flags, MetaFlags::new(b"v T30 Oabc k"));
    }
}
