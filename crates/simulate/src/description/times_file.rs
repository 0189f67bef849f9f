//! A column of measured times in a CSV file; the suffix of the column's name is the unit.

use crate::error::ModelError;
use std::path::Path;

const UNITS_S: [(&str, f64); 4] = [("_ms", 1e-3), ("_us", 1e-6), ("_ns", 1e-9), ("_s", 1.0)];

/// The times in seconds.
pub(crate) fn read_times_s(path: &Path, column: &str) -> Result<Vec<f64>, ModelError> {
    let place = path.display().to_string();
    let Some((_, unit_s)) = UNITS_S.iter().find(|(end, _)| column.ends_with(end)) else {
        return Err(ModelError::new("column", format!("'{column}' must end in its unit: _s, _ms, _us, _ns")));
    };
    let text = std::fs::read_to_string(path)
        .map_err(|error| ModelError::new(place.clone(), format!("cannot be read: {error}")))?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    let names = lines.next().map(|(_, line)| cells(line)).unwrap_or_default();
    let Some(index) = names.iter().position(|name| name == column) else {
        return Err(ModelError::new(place, format!("has no column '{column}'; it has {}", names.join(", "))));
    };
    lines
        .map(|(line, row)| {
            let cell = cells(row).into_iter().nth(index).unwrap_or_default();
            match cell.trim().parse::<f64>() {
                Ok(value) if value.is_finite() => Ok(value * unit_s),
                _ => Err(ModelError::new(
                    format!("{place}:{}", line + 1),
                    format!("must be a finite number, not '{cell}'"),
                )),
            }
        })
        .collect()
}

/// The cells of one line; a quoted cell may contain commas, and two quotes for one.
fn cells(line: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                push(&mut found, '"');
            }
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => found.push(String::new()),
            _ => push(&mut found, letter),
        }
    }
    found
}

fn push(cells: &mut [String], letter: char) {
    if let Some(cell) = cells.last_mut() {
        cell.push(letter);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_at_the_end_of_the_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("times.csv");
        std::fs::write(&path, "name,service_ms,wait_s\n\"a, b\",250,1\nc,750,2\n").unwrap();
        assert_eq!(read_times_s(&path, "service_ms").unwrap(), [0.25, 0.75]);
        assert_eq!(read_times_s(&path, "wait_s").unwrap(), [1.0, 2.0]);
        let line = |column| read_times_s(&path, column).unwrap_err().to_string();
        assert!(line("name").contains("must end in its unit"));
        assert!(line("sent_s").contains("has no column 'sent_s'; it has name, service_ms, wait_s"));
        std::fs::write(&path, "service_s\n1\nnan\n").unwrap();
        assert!(read_times_s(&path, "service_s").unwrap_err().to_string().contains("times.csv:3: must be a finite"));
        assert!(read_times_s(&folder.path().join("none"), "a_s").unwrap_err().to_string().contains("cannot be read"));
    }
}
