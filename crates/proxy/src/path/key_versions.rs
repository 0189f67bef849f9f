//! Which keys are being written, and how often they were. Near-caches compare it, so that none returns a value from before a write that
//! was acknowledged by any event loop of this process. All configurations of a process share it: a reload has writes in flight.
//!
//! A version changes when a write begins, and again when it ends. In between, the key has no version that a value could have.
//! Keys share versions by their hash. A write of another key with the same hash discards a value too early, never too late.

use clock::Nanos;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The number of versions. They take 512 KiB.
const VERSIONS: usize = 1 << 16;
/// The lower bits count the writes in flight, the upper bits the writes that have begun or ended.
const COUNT_BITS: u32 = 24;
const STEP: u64 = 1 << COUNT_BITS;
const IN_FLIGHT: u64 = STEP - 1;

/// The versions of all keys. Nothing is counted until a configuration has a near-cache. A clone is a handle to the same versions.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyVersions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    versions: OnceLock<Versions>,
    /// The longest time that a write of any configuration so far can be in flight, in nanoseconds.
    longest_write_ns: AtomicU64,
}

#[derive(Debug)]
struct Versions {
    of_keys: Box<[AtomicU64]>,
    /// Changes with requests that can write any key.
    of_all: AtomicU64,
    /// Before this time, writes may be in flight that were not counted.
    since: Nanos,
}

/// What a request writes, until `KeyVersions::end_write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Key(u16),
    Everything,
}

/// The version of a key at some time when no write of it was in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyVersion {
    place: u16,
    of_key: u64,
    of_all: u64,
}

impl KeyVersions {
    /// Begins a configuration whose writes are in flight for at most `longest_write`. If it has a near-cache, writes are counted from now
    /// on. Until those of earlier configurations that were not counted have been answered, no key has a version.
    pub(crate) fn begin_configuration(&self, has_near_cache: bool, longest_write: Duration, now: Nanos) {
        let earlier_ns = self.0.longest_write_ns.fetch_max(longest_write.as_nanos() as u64, Ordering::AcqRel);
        if has_near_cache {
            let _ = self.0.versions.get_or_init(|| Versions {
                of_keys: (0..VERSIONS).map(|_| AtomicU64::new(0)).collect(),
                of_all: AtomicU64::new(0),
                since: if earlier_ns == 0 { Nanos::UNSET } else { now + Duration::from_nanos(earlier_ns) },
            });
        }
    }

    /// Whether writes are counted.
    pub(crate) fn counts_writes(&self) -> bool {
        self.0.versions.get().is_some()
    }

    /// Begins a write of a key, or of everything. It must be called before the request is sent.
    pub(crate) fn begin_write(&self, key: Option<&[u8]>) -> Option<Written> {
        let versions = self.0.versions.get()?;
        let written = key.map_or(Written::Everything, |key| Written::Key(place_of(key)));
        versions.of(written).fetch_add(STEP + 1, Ordering::AcqRel);
        Some(written)
    }

    /// Ends a write: no server will answer it any more.
    pub(crate) fn end_write(&self, written: Written) {
        if let Some(versions) = self.0.versions.get() {
            versions.of(written).fetch_add(STEP - 1, Ordering::AcqRel);
        }
    }

    /// The version of a key, unless a write of it may be in flight.
    pub(crate) fn version(&self, key: &[u8], now: Nanos) -> Option<KeyVersion> {
        let (versions, place) = (self.0.versions.get()?, place_of(key));
        if now < versions.since {
            return None;
        }
        let version = KeyVersion {
            place,
            of_key: versions.of(Written::Key(place)).load(Ordering::Acquire),
            of_all: versions.of_all.load(Ordering::Acquire),
        };
        ((version.of_key | version.of_all) & IN_FLIGHT == 0).then_some(version)
    }

    /// Whether no write of the key was in flight since the time of this version.
    pub(crate) fn is_current(&self, version: &KeyVersion) -> bool {
        self.0.versions.get().is_some_and(|versions| {
            versions.of(Written::Key(version.place)).load(Ordering::Acquire) == version.of_key
                && versions.of_all.load(Ordering::Acquire) == version.of_all
        })
    }
}

impl Versions {
    fn of(&self, written: Written) -> &AtomicU64 {
        match written {
            Written::Key(place) => &self.of_keys[usize::from(place)],
            Written::Everything => &self.of_all,
        }
    }
}

fn place_of(key: &[u8]) -> u16 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    (hasher.finish() >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(10);
    const SECOND: Duration = Duration::from_secs(1);

    fn counting() -> KeyVersions {
        let versions = KeyVersions::default();
        versions.begin_configuration(true, SECOND, NOW);
        versions
    }

    #[test]
    fn a_version_is_current_until_a_write_begins_and_never_again() {
        let versions = counting();
        let before = versions.version(b"a", NOW).unwrap();
        assert!(versions.is_current(&before));
        let first = versions.begin_write(Some(b"a")).unwrap();
        assert!(!versions.is_current(&before) && versions.version(b"a", NOW).is_none());
        let second = versions.begin_write(Some(b"a")).unwrap();
        versions.end_write(first);
        assert!(versions.version(b"a", NOW).is_none(), "the second write is in flight");
        versions.end_write(second);
        assert!(!versions.is_current(&before) && versions.version(b"a", NOW).is_some());
    }

    #[test]
    fn a_write_of_everything_is_a_write_of_each_key() {
        let versions = counting();
        let before = versions.version(b"a", NOW).unwrap();
        let written = versions.begin_write(None).unwrap();
        assert!(!versions.is_current(&before) && versions.version(b"b", NOW).is_none());
        versions.end_write(written);
        assert!(!versions.is_current(&before) && versions.version(b"b", NOW).is_some());
    }

    #[test]
    fn another_key_has_its_own_version() {
        let versions = counting();
        let before = versions.version(b"a", NOW).unwrap();
        let written = versions.begin_write(Some(b"b")).unwrap();
        assert!(versions.is_current(&before));
        versions.end_write(written);
        assert!(versions.is_current(&before));
    }

    #[test]
    fn nothing_is_counted_without_a_near_cache_and_no_key_has_a_version_before_everything_is() {
        let versions = KeyVersions::default();
        versions.begin_configuration(false, 3 * SECOND, NOW);
        versions.begin_configuration(false, SECOND, NOW);
        assert!(versions.begin_write(Some(b"a")).is_none() && versions.version(b"a", NOW + 9 * SECOND).is_none());
        let clone = versions.clone();
        clone.begin_configuration(true, SECOND, NOW);
        // The next reload does not make it shorter.
        versions.begin_configuration(true, SECOND, NOW);
        assert!(
            versions.counts_writes() && versions.version(b"a", NOW + 3 * SECOND - Duration::from_nanos(1)).is_none()
        );
        let before = versions.version(b"a", NOW + 3 * SECOND).unwrap();
        clone.begin_write(Some(b"a"));
        assert!(!versions.is_current(&before));
    }
}
