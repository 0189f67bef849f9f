//! The header of a record file, which describes the layout of its rows.

use crate::row::{FIELD_BYTES, FIELDS};
use clock::{Nanos, STAGES, Stage};
use serde::{Deserialize, Serialize};

/// Name and version of the format, as in every header.
pub const FORMAT: &str = "waystage-records/1";
/// The first bytes of a record file.
pub(crate) const MAGIC: &[u8; 8] = b"WAYREC01";
/// The first bytes of the footer.
pub(crate) const FOOTER_MAGIC: &[u8; 8] = b"WAYEND01";
/// Bytes of the footer: magic, written, dropped, lost.
pub(crate) const FOOTER_BYTES: usize = 32;
/// A larger header is refused: the file is not a record file.
pub(crate) const HEADER_LIMIT_BYTES: usize = 64 * 1024;

/// The program that wrote a file; it determines the stamps of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The proxy; its rows have every stage.
    Proxy,
    /// The load generator.
    Load,
    /// The embedded cache.
    Cache,
    /// The message service; its rows have the stages of the proxy.
    Messages,
}

/// The header's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// The program: `proxy`, `load`, `cache` or `messages`.
    pub program: String,
    /// Version of the program.
    pub version: String,
    /// Names of the stamps, in order.
    pub stamps: Vec<String>,
    /// Names and types of the fields, in order.
    pub fields: Vec<(String, String)>,
    /// Bytes of one row, stamps included.
    pub row_bytes: usize,
    /// The sampling interval: one request in this many has a row.
    pub sample: u32,
    /// The clock of the stamps.
    pub clock: String,
    /// Wall-clock time at the start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The time of the stamps' clock at the same moment.
    pub started_clock_ns: u64,
}

impl Program {
    /// The name in file names and headers.
    pub fn name(self) -> &'static str {
        match self {
            Program::Proxy => "proxy",
            Program::Load => "load",
            Program::Cache => "cache",
            Program::Messages => "messages",
        }
    }

    /// Names of the stamps of this program's rows, in order.
    pub fn stamps(self) -> Vec<&'static str> {
        match self {
            Program::Proxy | Program::Messages => Stage::all().map(Stage::name).to_vec(),
            Program::Load => vec!["intended", "issued", "sent", "completed"],
            Program::Cache => vec!["received", "started", "served", "replied"],
        }
    }
}

impl Header {
    /// The header of a file that `program` starts now.
    pub fn new(program: Program, sample: u32, started_clock: Nanos, started_unix_ns: u64) -> Header {
        let stamps: Vec<String> = program.stamps().into_iter().map(String::from).collect();
        assert!(stamps.len() <= STAGES);
        Header {
            format: FORMAT.into(),
            program: program.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            row_bytes: FIELD_BYTES + 8 * stamps.len(),
            stamps,
            fields: FIELDS.iter().map(|&(name, kind)| (name.into(), kind.into())).collect(),
            sample,
            clock: "CLOCK_MONOTONIC".into(),
            started_unix_ns,
            started_clock_ns: started_clock.0,
        }
    }

    /// Magic, length and padded JSON: everything before the first row.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(self).unwrap_or_default();
        let padded = (MAGIC.len() + 4 + json.len()).next_multiple_of(8) - MAGIC.len() - 4;
        json.resize(padded, b' ');
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        [MAGIC.as_slice(), &length.to_le_bytes(), &json].concat()
    }
}
