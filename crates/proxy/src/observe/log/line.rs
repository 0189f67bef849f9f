//! One line of the log, as text and as JSON.

use crate::config::{LogFormat, LogLevel};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::Value;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: LogLevel,
    /// The name of the event, for filters.
    pub(crate) event: &'static str,
    /// A sentence.
    pub(crate) message: String,
    /// What JSON has besides.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

/// A line with its time.
struct Timed<'a>(&'a Line, &'a str);

impl Serialize for Timed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Timed(line, time) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", time)?;
        map.serialize_entry("level", line.level.name())?;
        map.serialize_entry("event", line.event)?;
        map.serialize_entry("message", &line.message)?;
        for (name, value) in &line.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Line {
    /// The bytes of the line, with its line end. `unix_ns` is the time.
    pub(crate) fn render(&self, format: LogFormat, unix_ns: u64) -> Vec<u8> {
        let time = time_text(unix_ns);
        let text = match format {
            LogFormat::Text => format!("{time} {:5} {}", self.level.name(), self.message),
            // Strings and numbers can always be encoded.
            LogFormat::Json => serde_json::to_string(&Timed(self, &time)).unwrap_or_default(),
        };
        let mut text = one_line(&text);
        text.push('\n');
        text.into_bytes()
    }
}

/// The text without line ends, control characters and changes of the direction of writing, so that nobody can forge a line.
fn one_line(text: &str) -> String {
    let is_bad = |char: char| {
        char.is_control() || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|char| if is_bad(char) { '\u{fffd}' } else { char }).collect()
}

/// The time in UTC as RFC 3339 writes it, with microseconds.
fn time_text(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000 / 1000);
    // 2^64 ns end in the year 2554.
    let at = time::OffsetDateTime::from_unix_timestamp(seconds as i64).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (date, (hour, minute, second)) = (at.date(), at.to_hms());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_time_and_nobody_can_forge_a_second_one() {
        let line = Line {
            level: LogLevel::Warn,
            event: "test",
            message: "a\nb\x1b\u{85}\u{202e}".into(),
            fields: vec![("count", 3.into())],
        };
        let text = |format| String::from_utf8(line.render(format, 1_700_000_000_123_456_789)).unwrap();
        assert_eq!(text(LogFormat::Text), "2023-11-14T22:13:20.123456Z warn  a\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\n");
        assert_eq!(
            text(LogFormat::Json),
            "{\"time\":\"2023-11-14T22:13:20.123456Z\",\"level\":\"warn\",\"event\":\"test\",\
             \"message\":\"a\\nb\\u001b\u{fffd}\u{fffd}\",\"count\":3}\n"
        );
    }
}
