//! The head of a record file: says how to read the rest.

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
/// A header larger than this is not ours.
pub(crate) const HEADER_LIMIT_BYTES: usize = 64 * 1024;

/// Which program wrote a file, and so which stamps its rows have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The proxy: all stages.
    Proxy,
    /// The load generator.
    Load,
    /// The embedded cache.
    Cache,
    /// The message service: the proxy's stages.
    Messages,
}

/// The header's JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// `proxy`, `load`, `cache` or `messages`.
    pub program: String,
    /// Version of the program.
    pub version: String,
    /// Names of the stamps, in order.
    pub stamps: Vec<String>,
    /// Names and types of the fields, in order.
    pub fields: Vec<(String, String)>,
    /// Bytes of one row, stamps included.
    pub row_bytes: usize,
    /// One request in so many is kept.
    pub sample: u32,
    /// Which clock the stamps are read from.
    pub clock: String,
    /// Wall-clock time at the start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// The stamps' clock at the same moment.
    pub started_clock_ns: u64,
}

impl Program {
    /// As in file names and headers.
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
    /// The header of a file that `program` begins now.
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
