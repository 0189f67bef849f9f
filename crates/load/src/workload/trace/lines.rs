//! Splits a stream into numbered lines. Keeps one buffer, and never more than one line of bounded length. Knows nothing
//! of the content of lines.

use std::io::{self, ErrorKind, Read};

/// Bytes read at once.
const READ_BYTES: usize = 256 * 1024;
/// No row is as long. Without a limit, a file without line ends would be read into memory completely.
pub(super) const LINE_BYTES_MAX: usize = 4096;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// Without its end, which may be `\n` or `\r\n`.
    Whole(&'a [u8]),
    /// Longer than [`LINE_BYTES_MAX`]; it has been skipped.
    TooLong,
}

/// Reads lines from a stream.
pub(super) struct Lines<R> {
    source: R,
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    number: u64,
    at_end: bool,
}

impl<R: Read> Lines<R> {
    /// Starts before the first line.
    pub(super) fn new(source: R) -> Lines<R> {
        Lines { source, buffer: vec![0; READ_BYTES].into_boxed_slice(), from: 0, to: 0, number: 0, at_end: false }
    }

    /// The number of the line that was returned last. The first line has number 1.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The next line; none at the end. The last line needs no line end.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut searched = 0;
        let mut is_too_long = false;
        loop {
            if let Some(length) = memchr::memchr(b'\n', &self.buffer[self.from + searched..self.to]) {
                let line = self.from..self.from + searched + length;
                self.from = line.end + 1;
                return Ok(Some(self.line(line.start, line.end, is_too_long)));
            }
            searched = self.to - self.from;
            if searched > LINE_BYTES_MAX {
                is_too_long = true;
                (self.from, searched) = (self.to, 0);
            }
            if self.at_end {
                let rest = self.from..self.to;
                self.from = self.to;
                if rest.is_empty() && !is_too_long {
                    return Ok(None);
                }
                return Ok(Some(self.line(rest.start, rest.end, is_too_long)));
            }
            self.fill()?;
        }
    }

    fn line(&mut self, start: usize, end: usize, is_too_long: bool) -> Line<'_> {
        self.number += 1;
        if is_too_long || end - start > LINE_BYTES_MAX {
            return Line::TooLong;
        }
        let line = &self.buffer[start..end];
        Line::Whole(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// Moves the remaining bytes to the front and reads more behind them.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        loop {
            match self.source.read(&mut self.buffer[self.to..]) {
                Ok(read) => {
                    self.to += read;
                    self.at_end = read == 0;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns its bytes in chunks of these sizes, repeated.
    pub(in crate::workload::trace) struct Chunks<'a> {
        pub(in crate::workload::trace) bytes: &'a [u8],
        pub(in crate::workload::trace) sizes: Vec<usize>,
        pub(in crate::workload::trace) next: usize,
    }

    impl Read for Chunks<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes[self.next % self.sizes.len()].min(self.bytes.len()).min(buffer.len());
            self.next += 1;
            buffer[..size].copy_from_slice(&self.bytes[..size]);
            self.bytes = &self.bytes[size..];
            Ok(size)
        }
    }

    fn all(bytes: &[u8], sizes: Vec<usize>) -> Vec<Option<Vec<u8>>> {
        let mut lines = Lines::new(Chunks { bytes, sizes, next: 0 });
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(match line {
                Line::Whole(line) => Some(line.to_vec()),
                Line::TooLong => None,
            });
        }
        assert_eq!(lines.number(), found.len() as u64);
        found
    }

    #[test]
    fn the_end_needs_no_line_end_and_empty_lines_count() {
        let of = |text: &str| all(text.as_bytes(), vec![3]).into_iter().map(Option::unwrap).collect::<Vec<_>>();
        assert_eq!(of(""), Vec::<Vec<u8>>::new());
        assert_eq!(of("ab\r\n\ncde"), [b"ab".to_vec(), b"".to_vec(), b"cde".to_vec()]);
        assert_eq!(of("ab\n"), [b"ab".to_vec()]);
    }

    #[test]
    fn a_line_without_an_end_is_not_kept_in_memory() {
        let mut bytes = vec![b'x'; 3 * READ_BYTES];
        assert_eq!(all(&bytes, vec![READ_BYTES]), [None]);
        bytes.extend_from_slice(b"\nshort\n");
        bytes.extend_from_slice(&[b'y'; LINE_BYTES_MAX]);
        bytes.extend_from_slice(b"\n");
        bytes.extend_from_slice(&[b'y'; LINE_BYTES_MAX + 1]);
        let found = all(&bytes, vec![1000]);
        assert_eq!(found, [None, Some(b"short".to_vec()), Some(vec![b'y'; LINE_BYTES_MAX]), None]);
    }

    proptest! {
        #[test]
        fn how_the_bytes_are_split_does_not_matter(
            text in "[ab\r\n]{0,200}",
            sizes in proptest::collection::vec(1usize..20, 1..10),
        ) {
            let lines: Vec<_> = all(text.as_bytes(), sizes).into_iter().map(Option::unwrap).collect();
            let mut expected: Vec<Vec<u8>> = text
                .split('\n')
                .map(|line| line.strip_suffix('\r').unwrap_or(line).as_bytes().to_vec())
                .collect();
            if text.is_empty() || text.ends_with('\n') {
                expected.pop();
            }
            prop_assert_eq!(lines, expected);
        }
    }
}
