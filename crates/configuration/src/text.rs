//! Durations and sizes that are text in a file. Each module is for serde's `with`.

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

/// A duration as text, `250ms`.
pub mod time {
    use super::*;

    /// Serializes it as text.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&quantity::duration_text(*time))
    }

    /// Deserializes it from text.
    ///
    /// # Errors
    /// If the text is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// An optional duration.
pub mod opt_time {
    use super::*;

    /// Serializes it as text, or as nothing.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        time.map(quantity::duration_text).serialize(serializer)
    }

    /// Deserializes it from text.
    ///
    /// # Errors
    /// If the text is not a duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_str(TimeVisitor).map(Some)
    }
}

/// An optional size, as text such as `64m` or as a number of bytes.
pub mod opt_size {
    use super::*;

    /// Serializes it as text, or as nothing.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<T, S>(size: &Option<T>, serializer: S) -> Result<S::Ok, S::Error>
    where
        T: Copy,
        u64: TryFrom<T>,
        S: Serializer,
    {
        let bytes = |size: T| u64::try_from(size).unwrap_or(u64::MAX);
        size.map(|size| quantity::bytes_text(bytes(size))).serialize(serializer)
    }

    /// Deserializes it from text or from a number.
    ///
    /// # Errors
    /// If it is not a size, or too large for one.
    pub fn deserialize<'de, T: TryFrom<u64>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(SizeVisitor(PhantomData)).map(Some)
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

struct SizeVisitor<T>(PhantomData<T>);

impl<T: TryFrom<u64>> Visitor<'_> for SizeVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a size in bytes such as 128, \"4k\" or \"64m\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let bytes = quantity::bytes(text).map_err(E::custom)? as u64;
        T::try_from(bytes).map_err(|_| E::custom(format_args!("{text:?} is more than this machine can address")))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}
