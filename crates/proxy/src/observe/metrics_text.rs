//! The metrics text format: families, samples, and the older Prometheus format. Knows no particular metric.

use crate::observe::catalogue::{self, Definition, MetricKind};
use crate::observe::labels::Labels;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use std::fmt;

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Whole(u64),
    Real(f64),
}

/// The metrics page while it is written.
pub(crate) struct Page<'p, 'e>(pub(crate) &'p mut DescriptorEncoder<'e>);

impl Page<'_, '_> {
    /// Begins a metric. The encoder itself appends the unit and `_total` to the name.
    pub(crate) fn family(
        &mut self,
        definition: &Definition,
        kind: MetricType,
    ) -> Result<MetricEncoder<'_>, fmt::Error> {
        let name = definition.name.strip_suffix("_total").unwrap_or(definition.name);
        let (name, unit) = match (name.strip_suffix("_seconds"), name.strip_suffix("_bytes")) {
            (Some(name), _) => (name, Some(&Unit::Seconds)),
            (_, Some(name)) => (name, Some(&Unit::Bytes)),
            _ => (name, None),
        };
        self.0.encode_descriptor(name, definition.help, unit, kind)
    }

    /// Writes a metric with all its samples.
    pub(crate) fn samples<'s>(
        &mut self,
        definition: &Definition,
        samples: impl IntoIterator<Item = (Labels<'s>, Number)>,
    ) -> fmt::Result {
        let kind = if definition.kind == MetricKind::Counter { MetricType::Counter } else { MetricType::Gauge };
        let mut family = self.family(definition, kind)?;
        for (labels, number) in samples {
            let names = labels.iter().map(|(name, _)| name);
            assert!(names.eq(definition.labels), "{} does not have the labels of its definition", definition.name);
            if labels.is_empty() {
                write(&mut family, kind, number)?;
            } else {
                write(&mut family.encode_family(&labels)?, kind, number)?;
            }
        }
        Ok(())
    }

    /// Writes a metric with one sample without labels.
    pub(crate) fn sample(&mut self, definition: &Definition, value: u64) -> fmt::Result {
        self.samples(definition, [(Labels::new(), Number::Whole(value))])
    }
}

fn write(encoder: &mut MetricEncoder<'_>, kind: MetricType, number: Number) -> fmt::Result {
    match (kind, number) {
        (MetricType::Counter, Number::Whole(value)) => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (MetricType::Counter, Number::Real(value)) => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
        (_, Number::Whole(value)) => encoder.encode_gauge(&i64::try_from(value).unwrap_or(i64::MAX)),
        (_, Number::Real(value)) => encoder.encode_gauge(&value),
    }
}

/// Converts the text to the older Prometheus format, for clients that do not accept OpenMetrics. In that format the head of a counter
/// has its full name, and there are no UNIT and EOF lines.
pub(crate) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let is_counter = |name: &str| {
        let of_name = |definition: &&&Definition| definition.name.strip_suffix("_total") == Some(name);
        catalogue::ALL.iter().any(|definition| of_name(&definition))
    };
    for line in open_metrics.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        match line.splitn(4, ' ').collect::<Vec<_>>().as_slice() {
            ["#", what, name, rest] if is_counter(name) => {
                text += &format!("# {what} {name}_total {rest}\n");
            }
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_in_full() {
        let text = "# HELP waystage_keys Keys.\n# TYPE waystage_keys counter\nwaystage_keys_total 3\n# HELP waystage_replied_bytes B.\n\
                    # UNIT waystage_replied_bytes bytes\nwaystage_replied_bytes_total 1\n# TYPE waystage_clients gauge\n# EOF\n";
        let expected = "# HELP waystage_keys_total Keys.\n# TYPE waystage_keys_total counter\nwaystage_keys_total 3\n\
                        # HELP waystage_replied_bytes_total B.\nwaystage_replied_bytes_total 1\n# TYPE waystage_clients gauge\n";
        assert_eq!(classic(text), expected);
    }
}
