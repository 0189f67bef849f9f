//! Strict reading of JSON: a wrong type or an unknown key is refused, with the name of the field and the rule.

use crate::description::Table;
use crate::error::ModelError;
use serde_json::{Map, Value};

type Outcome<T> = Result<T, ModelError>;

/// An object with all `needed` fields and no others than `known`.
pub(crate) fn object<'a>(
    place: &str,
    value: &'a Value,
    known: &[&str],
    needed: &[&str],
) -> Outcome<&'a Map<String, Value>> {
    let Value::Object(map) = value else { return Err(ModelError::new(place, "must be a JSON object")) };
    if let Some(unknown) = map.keys().find(|name| !known.contains(&name.as_str())) {
        let mut names = known.to_vec();
        names.sort_unstable();
        return Err(ModelError::new(
            format!("{place}.{unknown}"),
            format!("is not a field; the fields are {}", names.join(", ")),
        ));
    }
    if let Some(missing) = needed.iter().find(|name| !map.contains_key(**name)) {
        return Err(ModelError::new(format!("{place}.{missing}"), "is missing"));
    }
    Ok(map)
}

/// Products of larger or smaller times and rates would not be finite.
const SIZES: std::ops::RangeInclusive<f64> = 1e-100..=1e100;

/// A finite number of a usual size; the rules in `checks` decide about its sign.
pub(crate) fn number(place: &str, value: &Value) -> Outcome<f64> {
    let Value::Number(number) = value else { return Err(wrong(place, "must be a number", value)) };
    match number.as_f64() {
        Some(number) if number == 0.0 || SIZES.contains(&number.abs()) => Ok(number),
        _ => Err(wrong(place, "must be 0 or from 1e-100 to 1e100 in size", value)),
    }
}

/// The number in a field, or the default if the field is absent.
pub(crate) fn number_or(place: &str, map: &Map<String, Value>, name: &str, usual: f64) -> Outcome<f64> {
    map.get(name).map_or(Ok(usual), |value| number(&format!("{place}.{name}"), value))
}

/// The whole number in a field, or the default if the field is absent.
pub(crate) fn whole_or(place: &str, map: &Map<String, Value>, name: &str, usual: i64) -> Outcome<i64> {
    match map.get(name) {
        None => Ok(usual),
        Some(value) => value.as_i64().ok_or_else(|| wrong(&format!("{place}.{name}"), "must be a whole number", value)),
    }
}

/// A string.
pub(crate) fn text(place: &str, value: &Value) -> Outcome<String> {
    value.as_str().map(String::from).ok_or_else(|| wrong(place, "must be a text", value))
}

/// The string in a field, or the default if the field is absent.
pub(crate) fn text_or(place: &str, map: &Map<String, Value>, name: &str, usual: &str) -> Outcome<String> {
    map.get(name).map_or(Ok(usual.into()), |value| text(&format!("{place}.{name}"), value))
}

/// The list in a field; empty if the field is absent.
pub(crate) fn list<'a>(place: &str, map: &'a Map<String, Value>, name: &str) -> Outcome<&'a [Value]> {
    match map.get(name) {
        None => Ok(&[]),
        Some(Value::Array(values)) => Ok(values),
        Some(value) => Err(wrong(&inside(place, name), "must be a list", value)),
    }
}

/// The list of strings in a field.
pub(crate) fn texts(place: &str, map: &Map<String, Value>, name: &str) -> Outcome<Vec<String>> {
    let place = inside(place, name);
    list("", map, name)
        .map_err(|error| ModelError::new(place.clone(), error.rule))?
        .iter()
        .enumerate()
        .map(|(index, value)| text(&format!("{place}[{index}]"), value))
        .collect()
}

/// An object of objects of numbers; empty if the field is absent.
pub(crate) fn table(map: &Map<String, Value>, name: &str) -> Outcome<Table> {
    let Some(value) = map.get(name) else { return Ok(Vec::new()) };
    let refuse = || ModelError::new(name, "must be an object of objects");
    let mut rows = Vec::new();
    for (key, row) in value.as_object().ok_or_else(refuse)? {
        let mut cells = Vec::new();
        for (other, cell) in row.as_object().ok_or_else(refuse)? {
            cells.push((other.clone(), number(&format!("{name}.{key}.{other}"), cell)?));
        }
        rows.push((key.clone(), cells));
    }
    Ok(rows)
}

/// An error with the value.
pub(crate) fn wrong(place: &str, rule: &str, value: &Value) -> ModelError {
    let mut shown = value.to_string();
    if shown.chars().count() > 60 {
        shown = shown.chars().take(57).collect::<String>() + "...";
    }
    ModelError::new(place, format!("{rule}, not {shown}"))
}

fn inside(place: &str, name: &str) -> String {
    if place.is_empty() { name.into() } else { format!("{place}.{name}") }
}
