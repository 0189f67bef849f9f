//! Reads a record file, and refuses an incomplete one.

use crate::header::{FOOTER_BYTES, FOOTER_MAGIC, FORMAT, HEADER_LIMIT_BYTES, Header, MAGIC};
use crate::row::{FIELD_BYTES, FIELDS, Row};
use std::path::{Path, PathBuf};

/// A complete record file in memory.
#[derive(Debug)]
pub struct Reader {
    /// The header of the file.
    pub header: Header,
    /// Rows that were sampled but dropped; `None` if the file is read with `partial`.
    pub dropped: u64,
    /// Jobs that ended without a row.
    pub lost: u64,
    rows: Vec<u8>,
}

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum ReadError {
    #[error("{}: {source}", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{}: not a record file of this version (it must begin with WAYREC01)", path.display())]
    Magic { path: PathBuf },
    #[error("{}: its header cannot be read: {reason}", path.display())]
    Header { path: PathBuf, reason: String },
    #[error("{}: truncated after {rows} rows (the program was killed or still runs); --partial reads what is there", path.display())]
    Truncated { path: PathBuf, rows: usize },
    #[error("{}: the footer counts {written} rows but the file has {rows}; it was cut or joined", path.display())]
    Count { path: PathBuf, written: u64, rows: usize },
    #[error("{}: row {row}: its stamps decrease; the file is damaged", path.display())]
    Stamps { path: PathBuf, row: usize },
}

impl Reader {
    /// Reads and checks a file. With `partial`, the footer may be missing and an incomplete last row is ignored.
    ///
    /// # Errors
    /// If the file differs from docs/record-format.md in any way.
    pub fn open(path: &Path, partial: bool) -> Result<Reader, ReadError> {
        let path = path.to_owned();
        let bytes = std::fs::read(&path).map_err(|source| ReadError::Open { path: path.clone(), source })?;
        let (header, rows_at) = read_header(&path, &bytes)?;
        let body = &bytes[rows_at..];
        let footer_at = body.len().checked_sub(FOOTER_BYTES).filter(|&at| body[at..].starts_with(FOOTER_MAGIC));
        let (rows, dropped, lost) = match footer_at {
            Some(at) => {
                let number = |index: usize| le_u64(&body[at + 8 * index..]);
                let rows = at / header.row_bytes;
                if !at.is_multiple_of(header.row_bytes) || number(1) != rows as u64 {
                    return Err(ReadError::Count { path, written: number(1), rows });
                }
                (&body[..at], number(2), number(3))
            }
            None if partial => (&body[..body.len() - body.len() % header.row_bytes], 0, 0),
            None => return Err(ReadError::Truncated { path, rows: body.len() / header.row_bytes }),
        };
        let reader = Reader { header, dropped, lost, rows: rows.to_vec() };
        let damaged = reader.rows().position(|(_, stamps)| !stamps.is_sorted());
        match damaged {
            Some(row) => Err(ReadError::Stamps { path, row }),
            None => Ok(reader),
        }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows.len() / self.header.row_bytes
    }

    /// Whether the file has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All rows with their stamps, in file order.
    pub fn rows(&self) -> impl Iterator<Item = (Row, Vec<u64>)> + '_ {
        self.rows.chunks_exact(self.header.row_bytes).map(|bytes| {
            let stamps = bytes[FIELD_BYTES..].chunks_exact(8).map(le_u64).collect();
            (Row::decode(bytes), stamps)
        })
    }
}

/// The header, and the offset of the first row.
fn read_header(path: &Path, bytes: &[u8]) -> Result<(Header, usize), ReadError> {
    let refuse = |reason: String| ReadError::Header { path: path.to_owned(), reason };
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(ReadError::Magic { path: path.to_owned() });
    };
    let length = rest.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize);
    let Some(json) = length.filter(|&length| length <= HEADER_LIMIT_BYTES).and_then(|length| rest.get(4..4 + length))
    else {
        return Err(refuse("it is incomplete".into()));
    };
    let header: Header = serde_json::from_slice(json).map_err(|error| refuse(error.to_string()))?;
    let expected: Vec<(String, String)> = FIELDS.iter().map(|&(name, kind)| (name.into(), kind.into())).collect();
    if header.format != FORMAT {
        return Err(refuse(format!("format {:?}, but this program reads {FORMAT:?}", header.format)));
    }
    if header.fields != expected || header.row_bytes != FIELD_BYTES + 8 * header.stamps.len() {
        return Err(refuse("its fields are not those of this version".into()));
    }
    Ok((header, MAGIC.len() + 4 + json.len()))
}

/// The first eight bytes as a number.
fn le_u64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
