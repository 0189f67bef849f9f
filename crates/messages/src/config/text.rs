//! Values that are text in the file: durations and sizes.

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A duration that may be left out, as text such as `250ms`.
pub(super) mod opt_time {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(quantity::duration_text).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_str(TimeVisitor).map(Some)
    }
}

/// A size that may be left out, as text such as `64m` or as a number of bytes.
pub(super) mod opt_size {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(size: &Option<usize>, serializer: S) -> Result<S::Ok, S::Error> {
        size.map(|bytes| quantity::bytes_text(bytes as u64)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(SizeVisitor).map(Some)
    }
}

struct TimeVisitor;

impl Visitor<'_> for TimeVisitor {
    type Value = Duration;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"200us\", \"1.5ms\" or \"3s\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        quantity::duration(text).map_err(E::custom)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size in bytes such as 128, \"4k\" or \"64m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<usize, E> {
        quantity::bytes(text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<usize, E> {
        self.visit_str(&number.to_string())
    }
}
