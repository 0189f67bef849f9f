//! The configuration of clients that hang, vanish or connect too often.

use crate::config::ConfigError;
use quantity::duration_text;
use std::time::Duration;

/// The operator's settings. A timeout of zero is switched off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// How long a client may have no request.
    pub idle_timeout: Duration,
    /// How long an unfinished request may wait for its next byte.
    pub request_timeout: Duration,
    /// How long a client may read nothing while replies wait.
    pub unread_timeout: Duration,
    /// After how long without a byte the kernel checks whether the peer still exists. Also applies to backends.
    pub keepalive: Duration,
    /// The most clients from one address; zero for no limit.
    pub per_address: usize,
}

/// The shortest timeout. They are checked only now and then.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// The longest timeout.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// The longest time that the kernel accepts.
const KEEPALIVE_MAX: Duration = Duration::from_secs(32767);

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            idle_timeout: Duration::ZERO,
            request_timeout: Duration::from_secs(60),
            unread_timeout: Duration::from_secs(300),
            keepalive: Duration::from_secs(60),
            per_address: 0,
        }
    }
}

impl ClientLimits {
    /// Checks the settings.
    pub(crate) fn check(&self, clients_max: usize) -> Result<(), ConfigError> {
        let quoted = |time| format!("{:?}", duration_text(time));
        let timeouts = [
            ("client-idle-timeout", self.idle_timeout),
            ("client-request-timeout", self.request_timeout),
            ("client-unread-timeout", self.unread_timeout),
        ];
        for (key, timeout) in timeouts {
            if !timeout.is_zero() && !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout) {
                let problem = "give from 100ms to 720h, or 0s to switch it off";
                return Err(ConfigError::value(key, quoted(timeout), problem));
            }
        }
        if self.keepalive.subsec_nanos() != 0 || self.keepalive > KEEPALIVE_MAX {
            let problem = "the kernel counts whole seconds; give from 1s to 32767s, or 0s to switch it off";
            return Err(ConfigError::value("tcp-keepalive", quoted(self.keepalive), problem));
        }
        if self.per_address > clients_max {
            let problem = format!("more than clients-max, {clients_max}; give less, or 0 for no limit");
            return Err(ConfigError::value("clients-per-address", self.per_address, problem));
        }
        Ok(())
    }

    /// The shortest of the timeouts that are on.
    pub(crate) fn shortest_timeout(&self) -> Option<Duration> {
        let timeouts = [self.idle_timeout, self.request_timeout, self.unread_timeout];
        timeouts.into_iter().filter(|timeout| !timeout.is_zero()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_problem_is_reported_in_one_line() {
        let line = |change: fn(&mut ClientLimits)| {
            let mut limits = ClientLimits::default();
            change(&mut limits);
            limits.check(10).map_err(|error| error.to_string())
        };
        assert_eq!(line(|_| ()), Ok(()));
        assert!(line(|limits| limits.idle_timeout = Duration::from_millis(99)).unwrap_err().contains("100ms"));
        assert!(line(|limits| limits.keepalive = Duration::from_millis(1500)).unwrap_err().contains("whole seconds"));
        assert!(line(|limits| limits.per_address = 11).unwrap_err().contains("clients-max, 10"));
    }
}
