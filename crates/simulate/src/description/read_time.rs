//! Reads a time: a plain number is the mean of an exponential time, any other time is an object.
//! The rules are those of waylab/models/service.py.

use crate::description::json;
use crate::description::times_file::read_times_s;
use crate::description::{Shape, Time};
use crate::error::ModelError;
use serde_json::{Map, Value};
use std::path::Path;
use std::sync::Arc;

const FIELDS: [&str; 6] = ["mean_s", "squared_variation", "distribution", "values_s", "file", "column"];
const DISTRIBUTIONS: &str = "exponential, deterministic, erlang, hyperexponential, gamma, lognormal, empirical";
/// Beyond this, a run of practical length rarely draws the large values that determine the mean.
const VARIATION_MAX: f64 = 1e6;

type Outcome<T> = Result<T, ModelError>;

/// Reads a time. Paths of files with measured times are relative to `folder`.
pub(crate) fn read_time(place: &str, part: &Value, folder: &Path) -> Outcome<Time> {
    if part.is_number() {
        let mean_s = json::number(place, part)?;
        return checked(place, Time { mean_s, squared_variation: 1.0, shape: Shape::Exponential });
    }
    let map = json::object(place, part, &FIELDS, &[])?;
    let name = json::text_or(place, map, "distribution", "exponential")?;
    if name == "empirical" {
        return empirical(place, map, folder);
    }
    if let Some(field) = ["values_s", "file", "column"].iter().find(|field| map.contains_key(**field)) {
        return Err(ModelError::new(format!("{place}.{field}"), "belongs to the distribution `empirical`"));
    }
    let (shape, usual) = match name.as_str() {
        "exponential" => (Shape::Exponential, Some(1.0)),
        "deterministic" => (Shape::Deterministic, Some(0.0)),
        "erlang" => (Shape::Erlang, None),
        "hyperexponential" => (Shape::Hyperexponential, None),
        "gamma" => (Shape::Gamma, None),
        "lognormal" => (Shape::Lognormal, None),
        other => {
            let rule = format!("'{other}' is none of {DISTRIBUTIONS}");
            return Err(ModelError::new(format!("{place}.distribution"), rule));
        }
    };
    let mean_s = json::number(
        &format!("{place}.mean_s"),
        map.get("mean_s").ok_or_else(|| ModelError::new(format!("{place}.mean_s"), "is missing"))?,
    )?;
    let field = format!("{place}.squared_variation");
    let squared_variation = match (map.get("squared_variation"), usual) {
        (Some(value), _) => json::number(&field, value)?,
        (None, Some(usual)) => usual,
        (None, None) => return Err(ModelError::new(field, format!("is missing; a {name} distribution needs it"))),
    };
    checked(place, Time { mean_s, squared_variation, shape })
}

fn empirical(place: &str, map: &Map<String, Value>, folder: &Path) -> Outcome<Time> {
    if let Some(field) = ["mean_s", "squared_variation"].iter().find(|field| map.contains_key(**field)) {
        return Err(ModelError::new(format!("{place}.{field}"), "follows from the measured times"));
    }
    let values: Vec<f64> = match map.get("file") {
        Some(_) if map.contains_key("values_s") => {
            return Err(ModelError::new(format!("{place}.file"), "give either file or values_s, one of the two"));
        }
        Some(file) => {
            let file = json::text(&format!("{place}.file"), file)?;
            let column = json::text_or(place, map, "column", "service_s")?;
            read_times_s(&folder.join(file), &column)
                .map_err(|error| ModelError::new(format!("{place}.{}", error.place), error.rule))?
        }
        None => json::list(place, map, "values_s")?
            .iter()
            .enumerate()
            .map(|(index, value)| json::number(&format!("{place}.values_s[{index}]"), value))
            .collect::<Outcome<_>>()?,
    };
    if values.is_empty() {
        return Err(ModelError::new(format!("{place}.values_s"), "needs at least one measured time"));
    }
    if let Some((index, value)) = values.iter().enumerate().find(|(_, value)| **value < 0.0) {
        let rule = format!("must be a finite number >= 0, not {value}");
        return Err(ModelError::new(format!("{place}.values_s[{index}]"), rule));
    }
    let count = values.len() as f64;
    let mean_s = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean_s).powi(2)).sum::<f64>() / count;
    let squared_variation = if mean_s > 0.0 { variance / (mean_s * mean_s) } else { 0.0 };
    Ok(Time { mean_s, squared_variation, shape: Shape::Empirical(Arc::from(values)) })
}

/// The rules for mean and variation.
fn checked(place: &str, time: Time) -> Outcome<Time> {
    let (mean_s, variation) = (time.mean_s, time.squared_variation);
    if mean_s < 0.0 {
        let rule = format!("must be a finite number of seconds >= 0, not {mean_s}");
        return Err(ModelError::new(format!("{place}.mean_s"), rule));
    }
    let stages = (1.0 / variation).round();
    let rule = match time.shape {
        _ if variation < 0.0 => "must be finite and >= 0",
        _ if variation > VARIATION_MAX => "must be at most 1000000 to be simulated",
        Shape::Exponential if variation != 1.0 => "is 1 for an exponential distribution",
        Shape::Deterministic if variation != 0.0 => "is 0 for a deterministic time",
        Shape::Erlang if !(stages >= 1.0 && stages.is_finite() && (stages * variation - 1.0).abs() < 1e-6) => {
            "is 1/k for an Erlang distribution"
        }
        Shape::Hyperexponential if variation <= 1.0 => "is above 1 for a hyperexponential distribution",
        Shape::Gamma if variation <= 0.0 => "is above 0 for a gamma distribution",
        Shape::Lognormal if variation <= 0.0 => "is above 0 for a lognormal distribution",
        _ => return Ok(time),
    };
    Err(ModelError::new(format!("{place}.squared_variation"), format!("{rule}, not {variation}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_is_read() {
        let read = |value: Value| read_time("t", &value, Path::new(".")).unwrap();
        assert_eq!(read(json!(0.5)).shape, Shape::Exponential);
        assert_eq!(read(json!({"mean_s": 2, "distribution": "deterministic"})).squared_variation, 0.0);
        let erlang = read(json!({"mean_s": 2, "distribution": "erlang", "squared_variation": 1.0 / 3.0}));
        assert_eq!(erlang.shape, Shape::Erlang);
        let measured = read(json!({"distribution": "empirical", "values_s": [1, 3]}));
        assert_eq!((measured.mean_s, measured.squared_variation), (2.0, 0.25));
    }

    #[test]
    fn invalid_values_are_named() {
        let table = [
            (json!(-1), "t.mean_s: must be a finite number of seconds >= 0, not -1"),
            (json!("1"), "t: must be a JSON object"),
            (json!({"distribution": "gamma", "mean_s": 1}), "t.squared_variation: is missing; a gamma"),
            (json!({"distribution": "normal", "mean_s": 1}), "t.distribution: 'normal' is none of exponential"),
            (json!({"squared_variation": 1}), "t.mean_s: is missing"),
            (json!({"mean_s": 1, "squared_variation": 2}), "is 1 for an exponential distribution, not 2"),
            (json!({"mean_s": 1, "distribution": "erlang", "squared_variation": 0.4}), "is 1/k for an Erlang"),
            (json!({"mean_s": 1, "distribution": "gamma", "squared_variation": 1e9}), "at most 1000000"),
            (json!({"mean_s": 1, "values_s": [1]}), "t.values_s: belongs to the distribution `empirical`"),
            (json!({"distribution": "empirical"}), "t.values_s: needs at least one measured time"),
            (json!({"distribution": "empirical", "values_s": [1, -2]}), "t.values_s[1]: must be a finite"),
            (json!({"distribution": "empirical", "values_s": [1], "mean_s": 1}), "t.mean_s: follows from"),
            (json!({"mean": 1}), "t.mean: is not a field; the fields are column, distribution"),
            (json!({"mean_s": true}), "t.mean_s: must be a number, not true"),
        ];
        for (value, line) in table {
            let error = read_time("t", &value, Path::new(".")).unwrap_err().to_string();
            assert!(error.starts_with(line) || error.contains(line), "{error} does not say {line}");
        }
    }
}
