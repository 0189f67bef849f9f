//! The amounts of memory to simulate, if the user gives none.

use crate::slabs::{PAGE_BYTES, SlabSettings};

/// The memory today is compared with this many times as much.
const RATIOS: [f64; 17] = [0.01, 0.03, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0];
/// Amounts between the smallest and the largest, if the memory today is not known.
const STEPS: i32 = 20;

/// Amounts for an LRU of bytes: around `today`, or up to all items.
pub fn lru_sizes(today: Option<u64>, item_bytes: f64) -> Vec<u64> {
    sizes(today, item_bytes, 1024, 1)
}

/// Amounts for memcached, in whole MiB.
pub fn memcached_sizes(today: Option<u64>, item_bytes: f64, settings: &SlabSettings) -> Vec<u64> {
    // Chunks are larger than their items, and the last page of each class is not full.
    let all = item_bytes * settings.growth_factor.min(2.0) + 16.0 * PAGE_BYTES as f64;
    sizes(today, all, settings.memory_min(), PAGE_BYTES)
}

/// Increasing amounts of at least `smallest`, in multiples of `unit`, and today's with twice as much.
fn sizes(today: Option<u64>, all: f64, smallest: u64, unit: u64) -> Vec<u64> {
    let wanted: Vec<f64> = match today {
        Some(today) => RATIOS.iter().map(|ratio| ratio * today as f64).collect(),
        None => (0..=STEPS).map(|step| all * 0.01f64.powf(f64::from(STEPS - step) / f64::from(STEPS))).collect(),
    };
    let rounded = |bytes: f64| ((bytes / unit as f64).round() as u64 * unit).max(smallest);
    let mut sizes: Vec<u64> =
        wanted.into_iter().map(rounded).chain(today).chain(today.map(|bytes| 2 * bytes)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_increase_and_include_that_of_today() {
        let sizes = memcached_sizes(Some(64 << 20), 0.0, &SlabSettings::default());
        assert_eq!((sizes.first(), sizes.last()), (Some(&(2 << 20)), Some(&(640 << 20))));
        assert!(sizes.contains(&(64 << 20)) && sizes.is_sorted());
        let odd = (64 << 20) + 1000;
        let sizes = memcached_sizes(Some(odd), 0.0, &SlabSettings::default());
        assert!(sizes.contains(&odd) && sizes.contains(&(2 * odd)));
        assert_eq!(lru_sizes(Some(5000), 0.0).iter().filter(|size| **size == 5000).count(), 1);
    }

    #[test]
    fn without_an_amount_of_today_all_items_fit_into_the_largest() {
        let sizes = lru_sizes(None, 1e9);
        assert_eq!((sizes.len(), sizes[0], sizes[20]), (21, 10_000_000, 1_000_000_000));
        let sizes = memcached_sizes(None, 1000.0, &SlabSettings::default());
        assert_eq!((sizes[0], *sizes.last().unwrap()), (2 << 20, 16 << 20));
    }
}
