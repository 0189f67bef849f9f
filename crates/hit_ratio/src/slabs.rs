//! The slab classes of memcached 1.6: which items share pages, and how many of them fit into a page.

use crate::HitRatioError;

/// Bytes of a page.
pub(crate) const PAGE_BYTES: u64 = 1 << 20;
/// Bytes of the header of an item, without the token of `cas`.
const HEADER_BYTES: u32 = 48;
const CAS_BYTES: u32 = 8;
/// The byte after the key, and the two bytes after the value.
const TERMINATORS_BYTES: u32 = 3;
/// Chunks begin at multiples of this.
const ALIGNMENT: u32 = 8;
/// The largest chunk. A larger item has several.
const CHUNK_BYTES_MAX: u32 = 512 << 10;
/// The header of each chunk of a large item.
const CHUNK_HEADER_BYTES: u32 = 48;
/// Classes that memcached has at most, the last one included.
const CLASSES_MAX: usize = 63;
const ITEM_BYTES_LIMIT: u64 = 1 << 30;

/// The settings of memcached that determine its slab classes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlabSettings {
    /// `-f`: the ratio of the chunk sizes of consecutive classes.
    pub growth_factor: f64,
    /// `-n`: bytes for key and value in the smallest chunk.
    pub smallest_bytes: u32,
    /// `-I`: bytes of the largest item, header included.
    pub item_bytes_max: u64,
    /// Whether items have tokens for `cas`; `-C` turns them off.
    pub has_cas: bool,
}

/// A slab class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabClass {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Chunks of a page.
    pub chunks_per_page: u32,
}

/// All slab classes, the smallest first.
#[derive(Clone, Debug, PartialEq)]
pub struct SlabClasses {
    settings: SlabSettings,
    classes: Vec<SlabClass>,
}

impl Default for SlabSettings {
    fn default() -> SlabSettings {
        SlabSettings { growth_factor: 1.25, smallest_bytes: 48, item_bytes_max: 1 << 20, has_cas: true }
    }
}

impl SlabSettings {
    /// Bytes of an item in memory. The flags that a client stores with a value are assumed to be 0.
    pub fn item_bytes(&self, key_bytes: usize, value_bytes: u32) -> u32 {
        let cas = if self.has_cas { CAS_BYTES } else { 0 };
        (HEADER_BYTES + cas + TERMINATORS_BYTES + key_bytes as u32).saturating_add(value_bytes)
    }

    /// The smallest memory that memcached accepts with `-I`.
    pub fn memory_min(&self) -> u64 {
        2 * self.item_bytes_max
    }
}

impl SlabClasses {
    /// The classes for these settings.
    ///
    /// # Errors
    /// memcached refuses the settings as well.
    pub fn new(settings: SlabSettings) -> Result<SlabClasses, HitRatioError> {
        let refuse = |line: String| Err(HitRatioError::Slabs(line));
        if !(settings.growth_factor > 1.0 && settings.growth_factor < 1024.0) {
            return refuse(format!("-f {}: the growth factor must be above 1 and below 1024", settings.growth_factor));
        }
        if settings.smallest_bytes == 0 || settings.smallest_bytes > CHUNK_BYTES_MAX / 2 {
            return refuse(format!("-n {}: give 1 to {} bytes", settings.smallest_bytes, CHUNK_BYTES_MAX / 2));
        }
        let largest = settings.item_bytes_max;
        if largest == 0 || largest > ITEM_BYTES_LIMIT || !largest.is_multiple_of(u64::from(CHUNK_BYTES_MAX)) {
            return refuse(format!("-I {largest}: memcached 1.6 accepts multiples of 512k up to 1g"));
        }
        let mut classes = Vec::new();
        let mut bytes = HEADER_BYTES + settings.smallest_bytes;
        while classes.len() + 1 < CLASSES_MAX && f64::from(bytes) < f64::from(CHUNK_BYTES_MAX) / settings.growth_factor
        {
            bytes = bytes.next_multiple_of(ALIGNMENT);
            classes.push(SlabClass::of(bytes));
            bytes = (f64::from(bytes) * settings.growth_factor) as u32;
        }
        classes.push(SlabClass::of(CHUNK_BYTES_MAX));
        Ok(SlabClasses { settings, classes })
    }

    /// The settings of these classes.
    pub fn settings(&self) -> &SlabSettings {
        &self.settings
    }

    /// The classes, the smallest first.
    pub fn all(&self) -> &[SlabClass] {
        &self.classes
    }

    /// The class of an item, as an index, and how many chunks it needs there. None if memcached refuses the item.
    ///
    /// memcached stores a small header of a large item, and its last part, in smaller classes. Here, all parts of it are
    /// in the largest class.
    pub fn place(&self, item_bytes: u32) -> Option<(usize, u32)> {
        if u64::from(item_bytes) > self.settings.item_bytes_max {
            return None;
        }
        let class = self.classes.partition_point(|class| class.chunk_bytes < item_bytes);
        if class < self.classes.len() {
            return Some((class, 1));
        }
        Some((class - 1, item_bytes.div_ceil(CHUNK_BYTES_MAX - CHUNK_HEADER_BYTES)))
    }
}

impl SlabClass {
    fn of(chunk_bytes: u32) -> SlabClass {
        SlabClass { chunk_bytes, chunks_per_page: PAGE_BYTES as u32 / chunk_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_in_the_smallest_chunk_that_fits() {
        let slabs = SlabClasses::new(SlabSettings::default()).unwrap();
        assert_eq!(slabs.settings().item_bytes(10, 27), 96);
        assert_eq!([slabs.place(1), slabs.place(96), slabs.place(97)], [Some((0, 1)), Some((0, 1)), Some((1, 1))]);
        let last = slabs.all().len() - 1;
        assert_eq!([slabs.place(512 << 10), slabs.place((512 << 10) + 1)], [Some((last, 1)), Some((last, 2))]);
        assert_eq!([slabs.place(1 << 20), slabs.place((1 << 20) + 1)], [Some((last, 3)), None]);
    }

    #[test]
    fn settings_that_memcached_refuses_are_refused() {
        let usual = SlabSettings::default();
        for (settings, line) in [
            (SlabSettings { growth_factor: 1.0, ..usual }, "-f 1: the growth factor must be above 1 and below 1024"),
            (SlabSettings { growth_factor: f64::NAN, ..usual }, "-f NaN"),
            (SlabSettings { smallest_bytes: 0, ..usual }, "-n 0: give 1 to"),
            (SlabSettings { item_bytes_max: 256 << 10, ..usual }, "-I 262144: memcached 1.6 accepts multiples of 512k"),
            (SlabSettings { item_bytes_max: 2 << 30, ..usual }, "-I 2147483648"),
        ] {
            let refused = SlabClasses::new(settings).unwrap_err().to_string();
            assert!(refused.starts_with(line), "{refused}");
        }
    }
}
