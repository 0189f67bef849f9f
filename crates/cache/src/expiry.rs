//! Expiry times: converts the seconds that a client sends into the monotonic clock.

use clock::{Clock, Nanos, unix_now};
use std::time::Duration;

/// Larger numbers are seconds since 1970, smaller ones seconds from now: thirty days.
const RELATIVE_MAXIMUM_S: i64 = 60 * 60 * 24 * 30;

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    pub(crate) clock: Nanos,
    pub(crate) unix_ns: u64,
}

impl Epoch {
    /// The present moment.
    pub(crate) fn now(clock: &Clock) -> Epoch {
        Epoch { clock: clock.now(), unix_ns: unix_now() }
    }

    /// The expiry time of an item stored at `now`: 0 means never, a negative number means immediately.
    pub(crate) fn expiry(&self, exptime: i64, now: Nanos) -> Nanos {
        match exptime {
            0 => Nanos::NEVER,
            ..0 => Nanos::UNSET,
            1..=RELATIVE_MAXIMUM_S => now + Duration::from_secs(exptime.unsigned_abs()),
            _ => {
                let unix_ns = exptime.unsigned_abs().saturating_mul(1_000_000_000);
                // A time before the cache started has passed.
                unix_ns.checked_sub(self.unix_ns).map_or(Nanos::UNSET, |left| self.clock + Duration::from_nanos(left))
            }
        }
    }

    /// Seconds since 1970 at `now`.
    pub(crate) fn unix_s(&self, now: Nanos) -> u64 {
        (self.unix_ns + now.since(self.clock)) / 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_from_now_and_seconds_since_1970() {
        let epoch = Epoch { clock: Nanos(1_000_000_000), unix_ns: 1_700_000_000_000_000_000 };
        let now = Nanos(5_000_000_000);
        assert_eq!(epoch.expiry(0, now), Nanos::NEVER);
        assert_eq!(epoch.expiry(-1, now), Nanos::UNSET);
        assert_eq!(epoch.expiry(i64::MIN, now), Nanos::UNSET);
        assert_eq!(epoch.expiry(10, now), Nanos(15_000_000_000));
        assert_eq!(epoch.expiry(RELATIVE_MAXIMUM_S, now), Nanos(2_592_005_000_000_000));
        assert_eq!(epoch.expiry(RELATIVE_MAXIMUM_S + 1, now), Nanos::UNSET);
        assert_eq!(epoch.expiry(1_700_000_010, now), Nanos(11_000_000_000));
        assert_eq!(epoch.expiry(i64::MAX, now), Nanos(u64::MAX - 1_700_000_000_000_000_000 + 1_000_000_000));
        assert_eq!(epoch.unix_s(now), 1_700_000_004);
    }
}
