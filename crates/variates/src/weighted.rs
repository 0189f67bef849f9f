//! A list of values with weights.

/// Values in ascending order, each with a weight above 0.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Weighted {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    value: f64,
    weight: f64,
    /// The cumulative share of this value.
    cumulative: f64,
}

impl Weighted {
    /// A list of finite values with weights of at least 0; `None` if all weights are 0.
    /// Equal values are merged, and those with weight 0 are dropped.
    pub(crate) fn new(mut pairs: Vec<(f64, f64)>) -> Option<Weighted> {
        pairs.retain(|(_, weight)| *weight > 0.0);
        pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
        for (value, weight) in pairs {
            match entries.last_mut() {
                Some(last) if last.value == value => last.weight += weight,
                _ => entries.push(Entry { value, weight, cumulative: 0.0 }),
            }
        }
        let total: f64 = entries.iter().map(|entry| entry.weight).sum();
        let mut sum = 0.0;
        for entry in &mut entries {
            sum += entry.weight;
            entry.cumulative = sum / total;
        }
        // Rounding must not leave a gap at the end.
        entries.last_mut()?.cumulative = 1.0;
        total.is_finite().then_some(Weighted { entries })
    }

    /// The `u` quantile.
    pub(crate) fn quantile(&self, u: f64) -> f64 {
        let at = self.entries.partition_point(|entry| entry.cumulative < u);
        self.entries[at.min(self.entries.len() - 1)].value
    }

    pub(crate) fn mean(&self) -> f64 {
        let total: f64 = self.entries.iter().map(|entry| entry.weight).sum();
        self.entries.iter().map(|entry| entry.value * (entry.weight / total)).sum()
    }

    /// Values and weights as they were given.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.entries.iter().map(|entry| (entry.value, entry.weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_repetition_do_not_matter() {
        let list = Weighted::new(vec![(4.0, 1.0), (1.0, 2.0), (9.0, 0.0), (4.0, 1.0)]).unwrap();
        assert_eq!(list.pairs().collect::<Vec<_>>(), [(1.0, 2.0), (4.0, 2.0)]);
        assert_eq!([0.0, 0.5, 0.500_1, 1.0].map(|u| list.quantile(u)), [1.0, 1.0, 4.0, 4.0]);
        assert_eq!(list.mean(), 2.5);
    }

    #[test]
    fn a_list_without_weight_is_none() {
        assert_eq!(Weighted::new(vec![]), None);
        assert_eq!(Weighted::new(vec![(1.0, 0.0)]), None);
        assert_eq!(Weighted::new(vec![(1.0, f64::MAX), (2.0, f64::MAX)]), None);
    }
}
