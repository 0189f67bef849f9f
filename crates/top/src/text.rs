//! Parses the metrics text format of Prometheus, and OpenMetrics as far as it has the same lines.
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>

/// Label names and values, in the order of the page.
pub(crate) type Labels = Vec<(String, String)>;

/// One line with a number.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The name and the labels as they are on the page: the identity of the series.
    pub(crate) series: String,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
    /// Whether the number only grows while the process lives: counters, and the numbers of histograms.
    pub(crate) is_counter: bool,
}

/// Why a text is not a page of metrics.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TextError {
    #[error("line {line} of the page is not a metric: \"{text}\"")]
    Line { line: usize, text: String },
    #[error("the page has no metrics")]
    Empty,
    #[error("the page has more than {} metrics and labels", PARTS_MAX)]
    TooMany,
}

/// The characters of a faulty line that an error shows.
const SHOWN: usize = 32;
/// The most metrics and labels of a page, and labels of a metric. A short line needs eighty times its length in memory; a proxy with
/// 1000 backends has less than a fifth of this.
const PARTS_MAX: usize = if cfg!(test) { 10_000 } else { 1_000_000 };
const LABELS_MAX: usize = 100;
const SUFFIXES: [&str; 5] = ["", "_total", "_bucket", "_sum", "_count"];

/// Parses a page. Numbers that are infinite or not numbers are left out, because no sum or rate has a use for them.
pub(crate) fn parse(page: &str) -> Result<Vec<Sample>, TextError> {
    let (mut samples, mut family, mut kind, mut parts) = (Vec::new(), "", "", 0);
    for (index, line) in page.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            let mut words = comment.split_ascii_whitespace();
            if words.next() == Some("TYPE") {
                family = words.next().unwrap_or_default();
                kind = words.next().unwrap_or_default();
            }
            continue;
        }
        if line.is_empty() {
            continue;
        }
        let shown = || line.chars().take(SHOWN).flat_map(char::escape_debug).collect();
        let mut sample = sample(line).ok_or_else(|| TextError::Line { line: index + 1, text: shown() })?;
        parts += 1 + sample.labels.len();
        if parts > PARTS_MAX {
            return Err(TextError::TooMany);
        }
        let suffix = sample.name.strip_prefix(family);
        sample.is_counter = match kind {
            "counter" | "histogram" => suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix)),
            "summary" => suffix.is_some_and(|suffix| SUFFIXES[3..].contains(&suffix)),
            _ => false,
        };
        samples.push(sample);
    }
    if samples.is_empty() {
        return Err(TextError::Empty);
    }
    samples.retain(|sample| sample.value.is_finite());
    Ok(samples)
}

/// Parses one line: a name, labels, a number, and perhaps a time and an exemplar, which are not used.
fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !name.starts_with(|c: char| !c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.trim_start().strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None if rest.starts_with(char::is_whitespace) => (Labels::new(), rest),
        None => return None,
    };
    let series = line[..line.len() - rest.len()].to_owned();
    let mut words = rest.split_ascii_whitespace();
    let value = words.next()?.parse().ok()?;
    match words.next() {
        None | Some("#") => {}
        Some(time) => _ = time.parse::<f64>().ok()?,
    }
    Some(Sample { series, name: name.to_owned(), labels, value, is_counter: false })
}

/// Parses labels, the text after `{`. Returns them with the text after `}`.
fn labels(text: &str) -> Option<(Labels, &str)> {
    let (mut labels, mut rest) = (Labels::new(), text.trim_start());
    loop {
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once('=')?;
        let name = name.trim();
        if labels.len() == LABELS_MAX
            || name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return None;
        }
        let (value, after) = quoted(after.trim_start().strip_prefix('"')?)?;
        labels.push((name.to_owned(), value));
        let after = after.trim_start();
        rest = after.strip_prefix(',').map(str::trim_start).or_else(|| after.starts_with('}').then_some(after))?;
    }
}

/// Parses the text after an opening quote. Returns the value, with a replacement for every character that terminals obey; and the text
/// after the closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut characters) = (String::new(), text.char_indices());
    loop {
        let found = match characters.next()? {
            (at, '"') => return Some((value, &text[at + 1..])),
            (_, '\\') => match characters.next()?.1 {
                'n' => '\n',
                other => other,
            },
            (_, other) => other,
        };
        value.push(if is_obeyed(found) { char::REPLACEMENT_CHARACTER } else { found });
    }
}

/// Whether terminals may obey a character instead of showing it: control characters, and those that change the direction of text.
fn is_obeyed(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<(String, Labels, f64)> {
        sample(line).map(|sample| (sample.name, sample.labels, sample.value))
    }

    #[test]
    fn lines_of_both_formats_are_read() {
        let labelled = |labels: &[(&str, &str)], value| {
            let labels = labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
            Some(("a".into(), labels, value))
        };
        for (line, expected) in [
            ("a 1", labelled(&[], 1.0)),
            ("a{} 1.5e3 1700000000", labelled(&[], 1500.0)),
            ("a{b=\"c\"} -1", labelled(&[("b", "c")], -1.0)),
            ("a { b = \"c\" , d=\"\", } 2", labelled(&[("b", "c"), ("d", "")], 2.0)),
            (r#"a{b="x\"}\\,\n"} 3"#, labelled(&[("b", "x\"}\\,\u{fffd}")], 3.0)),
            ("a{b=\"\u{1b}[2J\"} 3", labelled(&[("b", "\u{fffd}[2J")], 3.0)),
            ("a{b=\"\u{202e}\u{2066}\u{e9}\"} 3", labelled(&[("b", "\u{fffd}\u{fffd}\u{e9}")], 3.0)),
            ("a{le=\"+Inf\"} 4 # {trace=\"x\"} 0.5 1.2", labelled(&[("le", "+Inf")], 4.0)),
        ] {
            assert_eq!(one(line), expected, "{line}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in [
            "<!DOCTYPE html>",
            "a",
            "a{",
            "a{b",
            "a{b=",
            "a{b=\"",
            "a{b=\"c",
            "a{b=\"c\\",
            "a{b=\"c\"",
            "a{b=\"c\"}",
            "a{b=\"c\"d=\"e\"} 1",
            "a{=\"c\"} 1",
            "a b",
            "a 1 b",
            "1a 1",
            "{b=\"c\"} 1",
            "ä 1",
            "a-b 1",
            "\u{0}",
            "a{b=\"ä} 1",
        ] {
            assert_eq!(one(line), None, "{line:?}");
            assert!(matches!(parse(line), Err(TextError::Line { line: 1, .. })), "{line:?}");
        }
        assert_eq!(parse(""), Err(TextError::Empty));
        assert_eq!(parse("# TYPE a counter\n\n"), Err(TextError::Empty));
        let error = parse("a 1\n\u{1b}[2J<html>").unwrap_err().to_string();
        assert_eq!(error, "line 2 of the page is not a metric: \"\\u{1b}[2J<html>\"");
    }

    #[test]
    fn a_page_of_too_many_parts_is_refused() {
        let line = format!("a{{{}}} 1", "b=\"\",".repeat(LABELS_MAX + 1));
        assert_eq!(one(&line), None);
        assert_eq!(parse(&"a 1\n".repeat(PARTS_MAX)).map(|samples| samples.len()), Ok(PARTS_MAX));
        assert_eq!(parse(&"a{b=\"\"} 1\n".repeat(PARTS_MAX / 2 + 1)), Err(TextError::TooMany));
    }

    #[test]
    fn the_type_says_what_only_grows() {
        let page = "# TYPE a counter\na_total 1\n# TYPE b gauge\nb 1\n# TYPE c histogram\nc_bucket{le=\"1\"} 1\nc_sum 1\nc_count 1\n\
                    c_other 1\n# TYPE d summary\nd{quantile=\"0.5\"} 1\nd_sum 1\n# TYPE e_total counter\ne_total NaN\ne_total{x=\"\"} +Inf\n";
        let counters: Vec<_> =
            parse(page).unwrap().into_iter().filter(|sample| sample.is_counter).map(|sample| sample.series).collect();
        assert_eq!(counters, ["a_total", "c_bucket{le=\"1\"}", "c_sum", "c_count", "d_sum"]);
    }

    #[test]
    fn no_cut_of_a_page_is_a_panic() {
        let page = "# TYPE a counter\na{b=\"\\\"ä\u{1f600}\\n\",c=\"d\"} 1e5 17 # {x=\"y\"} 1\n";
        for end in (0..=page.len()).filter(|end| page.is_char_boundary(*end)) {
            for start in (0..=end).filter(|start| page.is_char_boundary(*start)) {
                let _ = parse(&page[start..end]);
            }
        }
    }
}
