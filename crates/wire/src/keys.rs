//! The keys of a retrieval line, as a view of the received bytes.

use crate::words::Words;

/// Keys separated by spaces, as they were received. The first one is found once, because most lines have no other.
#[derive(Clone, Copy, Default)]
pub struct Keys<'a> {
    /// Empty if there is no key.
    first: &'a [u8],
    /// The other keys, without spaces before them.
    rest: &'a [u8],
}

/// An iterator over the keys.
#[derive(Clone, Debug)]
pub struct KeyIter<'a> {
    first: Option<&'a [u8]>,
    rest: Words<'a>,
}

impl<'a> Keys<'a> {
    /// The keys in `bytes`, which are separated by one or more spaces.
    pub fn new(bytes: &'a [u8]) -> Keys<'a> {
        let mut words = Words::new(bytes);
        Keys { first: words.next().unwrap_or_default(), rest: words.rest() }
    }

    /// One key, which contains no space.
    pub fn one(key: &'a [u8]) -> Keys<'a> {
        Keys { first: key, rest: &[] }
    }

    /// The keys in the order of the line, duplicates included.
    pub fn iter(&self) -> KeyIter<'a> {
        KeyIter { first: self.first(), rest: Words::new(self.rest) }
    }

    /// The number of keys, duplicates included.
    pub fn count(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are more keys than this.
    pub fn are_more_than(&self, count: usize) -> bool {
        match count {
            0 => !self.first.is_empty(),
            1 => !self.rest.is_empty(),
            // A key and the space after it take two bytes at least, so the length alone decides in most cases.
            _ => self.rest.len() / 2 + 1 >= count && self.iter().nth(count).is_some(),
        }
    }

    /// The first `count` keys, and the others.
    pub fn split(&self, count: usize) -> (Keys<'a>, Keys<'a>) {
        if count == 0 {
            return (Keys::default(), *self);
        }
        let mut words = Words::new(self.rest);
        words.by_ref().take(count - 1).for_each(drop);
        let rest = words.rest();
        (Keys { rest: &self.rest[..self.rest.len() - rest.len()], ..*self }, Keys::new(rest))
    }

    /// The first key; a parsed request has at least one.
    pub fn first(&self) -> Option<&'a [u8]> {
        (!self.first.is_empty()).then_some(self.first)
    }
}

impl<'a> Iterator for KeyIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.first.take().or_else(|| self.rest.next())
    }
}

impl<'a> IntoIterator for Keys<'a> {
    type Item = &'a [u8];
    type IntoIter = KeyIter<'a>;

    fn into_iter(self) -> KeyIter<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &Keys<'a> {
    type Item = &'a [u8];
    type IntoIter = KeyIter<'a>;

    fn into_iter(self) -> KeyIter<'a> {
        self.iter()
    }
}

impl PartialEq for Keys<'_> {
    /// The number of spaces between the keys does not matter.
    fn eq(&self, other: &Keys<'_>) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Keys<'_> {}

impl std::fmt::Debug for Keys<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter().map(|key| String::from_utf8_lossy(key).into_owned())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_around_keys_do_not_count() {
        assert_eq!(Keys::one(b"a"), Keys::new(b"a"));
        let keys = Keys::new(b"  a bb   a ");
        assert_eq!(keys.iter().collect::<Vec<_>>(), [&b"a"[..], b"bb", b"a"]);
        assert_eq!((keys.count(), keys.first()), (3, Some(&b"a"[..])));
        assert_eq!(keys, Keys::new(b"a bb a"));
        assert_ne!(keys, Keys::new(b"a bb"));
        let (first, rest) = keys.split(2);
        assert_eq!((first, rest), (Keys::new(b"a bb"), Keys::new(b"a")));
        for (text, count) in [("", 0), ("a", 1), ("a b", 2), ("a b c ", 3), ("aaaaaaaa b", 2)] {
            let more = (0..6).map(|least| Keys::new(text.as_bytes()).are_more_than(least));
            assert_eq!(more.collect::<Vec<_>>(), (0..6).map(|least| count > least).collect::<Vec<_>>(), "{text:?}");
        }
        assert_eq!((keys.split(5).0, keys.split(5).1.count()), (keys, 0));
        assert_eq!((Keys::new(b" ").count(), Keys::new(b" ").first()), (0, None));
    }
}
