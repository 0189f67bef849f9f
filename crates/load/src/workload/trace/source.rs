//! The bytes of a trace file, plain or compressed with zstd. The first bytes of the file decide which, not its name.
//! Knows nothing of lines.

use super::TraceError;
use super::config::TraceConfig;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Bytes read from the file at once.
const READ_BYTES: usize = 256 * 1024;
/// The start of a frame, and of a skippable frame without its last four bits: RFC 8878, sections 3.1.1 and 3.1.2.
const FRAME_MAGIC: u32 = 0xFD2F_B528;
const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
/// The largest window that is decoded. `zstd --long=27` and `--ultra -22` need it, and `zstd -d` accepts it by default.
const WINDOW_BYTES_MAX: u64 = 1 << 27;
/// Other compression formats: their first bytes and their names.
const OTHERS: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"PK\x03\x04", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

/// A stream of the bytes of the trace.
pub(super) type Source = Box<dyn Read + Send>;

/// The consecutive frames of a zstd file.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    in_frame: bool,
}

/// Opens the file of a trace.
pub(super) fn open(config: &TraceConfig) -> Result<Source, TraceError> {
    let path = config.name();
    let file = File::open(&config.path).map_err(|source| TraceError::Open { path: path.clone(), source })?;
    if file.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Err(TraceError::Directory { path });
    }
    decoded(file).map_err(|source| TraceError::Open { path, source })
}

/// The bytes of the trace in `file`, decompressed.
fn decoded(mut file: impl Read + Send + 'static) -> io::Result<Source> {
    let mut first = Vec::new();
    file.by_ref().take(6).read_to_end(&mut first)?;
    if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| first.starts_with(magic)) {
        return Err(io::Error::other(format!("compressed with {name}; only zstd and plain text are read")));
    }
    let magic = first.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let source = Cursor::new(first).chain(file);
    if magic.is_some_and(|magic| magic == FRAME_MAGIC || magic & !0xf == SKIPPABLE_MAGIC) {
        return Ok(Box::new(Frames::new(BufReader::with_capacity(READ_BYTES, source))));
    }
    Ok(Box::new(source))
}

impl<R: BufRead> Frames<R> {
    fn new(source: R) -> Frames<R> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_BYTES_MAX);
        Frames { source, decoder, in_frame: false }
    }

    /// Starts the next frame with data. Returns false at the end of the file.
    fn begin(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(u64::from(length)), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(truncated());
                    }
                }
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(false)
    }

    /// Ends a frame after all of its data has been read.
    fn end(&mut self) -> io::Result<()> {
        self.in_frame = false;
        let written = self.decoder.get_checksum_from_data();
        if written.is_some() && written != self.decoder.get_calculated_checksum() {
            return Err(io::Error::other("the zstd data is damaged: its checksum does not agree"));
        }
        Ok(())
    }

    /// The error message for an error of the decoder.
    fn failed(&mut self, error: &FrameDecoderError) -> io::Error {
        if let FrameDecoderError::WindowSizeTooBig { requested, .. } = error {
            let line = format!(
                "compressed with a window of {} MiB, above the {} MiB that are decoded; decompress it first",
                requested >> 20,
                WINDOW_BYTES_MAX >> 20
            );
            return io::Error::other(line);
        }
        match self.source.fill_buf() {
            // The decoder needed more bytes than the file has.
            Ok([]) => truncated(),
            Ok(_) => io::Error::other("the zstd data is damaged"),
            Err(error) => error,
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame && !self.begin()? {
                return Ok(0);
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            if self.decoder.is_finished() {
                self.end()?;
            } else {
                // Decodes one block of at most 128 KiB at a time. Only that and the window are kept.
                let decoded = self.decoder.decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1));
                decoded.map_err(|error| self.failed(&error))?;
            }
        }
    }
}

fn truncated() -> io::Error {
    io::Error::other("the zstd data ends in the middle; is the file truncated?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    fn text() -> Vec<u8> {
        (0..40_000)
            .flat_map(|row| format!("{},key-{},9,{},1,get,0\n", row / 100, row % 977, row % 51).into_bytes())
            .collect()
    }

    fn read(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut read = Vec::new();
        let mut source = decoded(Cursor::new(bytes)).map_err(|error| error.to_string())?;
        source.read_to_end(&mut read).map(|_| read).map_err(|error| error.to_string())
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let mut bytes = b"\x5a\x2a\x4d\x18\x05\x00\x00\x00later".to_vec();
        let expected = text();
        let (half, other) = expected.split_at(expected.len() / 2);
        bytes.extend(compress_to_vec(half, CompressionLevel::Fastest));
        bytes.extend(b"\x50\x2a\x4d\x18\x00\x00\x00\x00");
        bytes.extend(compress_to_vec(other, CompressionLevel::Fastest));
        assert!(read(bytes).unwrap() == expected);
        assert!(read(expected.clone()).unwrap() == expected, "plain text is read as it is");
        for short in ["", "1", "1,k,1"] {
            assert_eq!(read(short.into()).unwrap(), short.as_bytes());
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_truncated() {
        let bytes = compress_to_vec(text().as_slice(), CompressionLevel::Fastest);
        let cuts = [4, 5, 6, 7, 8, 9, bytes.len() / 2, bytes.len() - 5, bytes.len() - 4, bytes.len() - 1];
        for cut in cuts {
            let line = read(bytes[..cut].to_vec()).unwrap_err();
            assert_eq!(line, "the zstd data ends in the middle; is the file truncated?", "cut at {cut}");
        }
        let skipped = b"\x50\x2a\x4d\x18\x09\x00\x00\x00later".to_vec();
        assert!(read(skipped).unwrap_err().contains("truncated"));
    }

    #[test]
    fn damage_is_found() {
        let mut bytes = compress_to_vec(text().as_slice(), CompressionLevel::Fastest);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert!(read(bytes.clone()).unwrap_err().contains("checksum"));
        bytes[last] ^= 1;
        bytes.extend(b"not zstd");
        assert_eq!(read(bytes).unwrap_err(), "the zstd data is damaged");
        assert!(read(b"\x1f\x8b\x08\x00".to_vec()).unwrap_err().contains("gzip"));
    }
}
