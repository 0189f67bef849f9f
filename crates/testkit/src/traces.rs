//! Small traces in the seven-column format, generated from a seed, for tests that replay one and know the expected result.

use std::fmt::Write;
use std::path::Path;

/// The parameters of a trace.
#[derive(Clone, Debug)]
pub struct SyntheticTrace {
    /// Rows of each consecutive second; 0 is a gap.
    pub rows_per_second: Vec<usize>,
    /// The first timestamp.
    pub first_second: u64,
    /// The number of different keys.
    pub keys: u64,
    /// The largest value; sizes start at 1 byte.
    pub value_bytes_max: u64,
    /// The seed of everything that is drawn.
    pub seed: u64,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns of the format")]
pub struct SyntheticRow {
    pub second: u64,
    pub key: String,
    pub value_bytes: u64,
    pub client: u64,
    pub operation: &'static str,
    pub ttl_s: u64,
}

const OPERATIONS: [&str; 11] =
    ["get", "gets", "set", "add", "replace", "cas", "append", "prepend", "delete", "incr", "decr"];

impl Default for SyntheticTrace {
    fn default() -> SyntheticTrace {
        SyntheticTrace { rows_per_second: vec![50; 4], first_second: 0, keys: 20, value_bytes_max: 500, seed: 1 }
    }
}

impl SyntheticTrace {
    /// Its rows: half of them gets, the others any operation.
    pub fn rows(&self) -> Vec<SyntheticRow> {
        let mut state = self.seed;
        let mut draw = move |below: u64| next(&mut state) % below;
        let mut rows = Vec::new();
        for (second, count) in (self.first_second..).zip(&self.rows_per_second) {
            for _ in 0..*count {
                let operation = if draw(2) == 0 { "get" } else { OPERATIONS[draw(11) as usize] };
                let writes = matches!(operation, "set" | "add" | "replace" | "cas");
                rows.push(SyntheticRow {
                    second,
                    key: format!("ns:{}:k{}", draw(self.keys) % 3, draw(self.keys)),
                    value_bytes: 1 + draw(self.value_bytes_max),
                    client: draw(8),
                    operation,
                    ttl_s: if writes { 60 * (1 + draw(1000)) } else { 0 },
                });
            }
        }
        rows
    }

    /// The trace in its file format.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.rows().iter().for_each(|row| writeln!(text, "{}", row.line()).unwrap());
        text
    }

    /// Writes it to a file.
    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.text()).unwrap();
    }
}

impl SyntheticRow {
    /// The row as a line, without its end.
    pub fn line(&self) -> String {
        let SyntheticRow { second, key, value_bytes, client, operation, ttl_s } = self;
        format!("{second},{key},{},{value_bytes},{client},{operation},{ttl_s}", key.len())
    }
}

/// SplitMix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
