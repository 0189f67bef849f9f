//! The units of random variates: sizes, times, or plain numbers.

/// The unit of the numbers of a variate, and so how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Sizes such as `128`, `30.8` or `4k` (powers of 1024); values are bytes.
    Bytes,
    /// Times such as `200us`, `1.5ms` or `3s`; values are nanoseconds.
    Time,
    /// Numbers such as `-0.5` or `1e3`.
    Plain,
}

impl Unit {
    /// The value of a text, or a line that describes a valid text.
    pub(crate) fn read(self, text: &str) -> Result<f64, String> {
        match self {
            Unit::Bytes => quantity::bytes_f64(text),
            Unit::Time => quantity::duration_ns_f64(text),
            Unit::Plain => number(text),
        }
    }

    /// A text that `read` reads as exactly this value.
    pub(crate) fn write(self, value: f64) -> String {
        match self {
            Unit::Bytes => quantity::bytes_f64_text(value),
            Unit::Time => quantity::duration_ns_f64_text(value),
            Unit::Plain => value.to_string(),
        }
    }

    /// A smaller and a larger value, for examples.
    pub(crate) fn examples(self) -> (&'static str, &'static str) {
        match self {
            Unit::Bytes => ("100", "4k"),
            Unit::Time => ("200us", "1ms"),
            Unit::Plain => ("1", "10"),
        }
    }
}

/// A finite number without a unit.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("{text:?} is not a finite number"))
}
