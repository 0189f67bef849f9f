//! Parses delay, expiry and idempotency key, of a single message and of one in a batch.

use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::rules::{KEY_BYTES_MAX, is_key};
use crate::observe::limits::RequestLimit;
use axum::http::{HeaderMap, HeaderName};
use std::time::Duration;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// A duration up to the limit, in milliseconds, rounded up. `what` names the parameter or field.
pub(super) fn time_ms(what: &str, text: &str, longest: Duration, limit: RequestLimit) -> Result<i64, Problem> {
    match quantity::duration(text) {
        Ok(time) if time <= longest => Ok(i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)),
        Ok(_) => Err(Problem::over(limit, format!("{what}: the longest is {}", quantity::duration_text(longest)))),
        Err(error) => Err(Problem::invalid_request(format!("{what}: {error}"))),
    }
}

/// The same for a duration that must not be zero.
pub(super) fn positive_ms(what: &str, text: &str, longest: Duration, limit: RequestLimit) -> Result<i64, Problem> {
    match time_ms(what, text, longest, limit)? {
        0 => Err(Problem::invalid_request(format!("{what}: it must be longer than 0"))),
        ms => Ok(ms),
    }
}

/// Delay and expiry of a message, 0 if missing. `prefix` names the message.
pub(super) fn times(
    prefix: &str,
    delay: Option<&str>,
    expiry: Option<&str>,
    limits: &Limits,
) -> Result<(i64, i64), Problem> {
    let delay_ms =
        delay.map_or(Ok(0), |text| time_ms(&format!("{prefix}delay"), text, limits.delay, RequestLimit::DelayLimit))?;
    let expiry_ms = expiry.map_or(Ok(0), |text| {
        positive_ms(&format!("{prefix}expiry"), text, limits.expiry, RequestLimit::ExpiryLimit)
    })?;
    if expiry.is_some() && expiry_ms <= delay_ms {
        return Err(Problem::never_visible(format!("{prefix}expiry: it must be longer than the delay")));
    }
    Ok((delay_ms, expiry_ms))
}

/// The idempotency key; empty if there is none.
pub(super) fn key(headers: &HeaderMap) -> Result<String, Problem> {
    let refuse = |is_long: bool| {
        let detail = format!("the header Idempotency-Key: give it once, with 1 to {KEY_BYTES_MAX} visible characters");
        Err(if is_long { Problem::over(RequestLimit::Interface, detail) } else { Problem::invalid_request(detail) })
    };
    let mut values = headers.get_all(KEY).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(String::new()),
        (Some(value), None) => match value.to_str() {
            Ok(key) if is_key(key) => Ok(key.to_string()),
            Ok(key) if key.len() > KEY_BYTES_MAX => refuse(true),
            _ => refuse(false),
        },
        _ => refuse(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_limits_and_are_never_rounded_to_zero() {
        let limits = Limits::default();
        assert_eq!(times("", Some("1us"), Some("1h"), &limits), Ok((1, 3_600_000)));
        assert_eq!(times("", Some("1ns"), Some("1ms"), &limits).map_err(|problem| problem.status.as_u16()), Err(422));
        assert_eq!(times("", Some("0s"), None, &limits), Ok((0, 0)));
        let bad = [
            (Some("361h"), None),
            (None, Some("0s")),
            (Some("1s"), Some("1s")),
            (Some("soon"), None),
            (None, Some("-1s")),
        ];
        for (delay, expiry) in bad {
            let problem = times("messages[2].", delay, expiry, &limits).unwrap_err();
            assert!(problem.detail.starts_with("messages[2]."), "{delay:?} {expiry:?}: {}", problem.detail);
        }
    }

    #[test]
    fn a_key_is_short_printable_and_given_once() {
        let headers = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(KEY, value.parse().unwrap());
            }
            headers
        };
        assert_eq!(key(&headers(&[])), Ok(String::new()));
        assert_eq!(key(&headers(&["\"8e03978e-40d5\""])), Ok("\"8e03978e-40d5\"".into()));
        for bad in [vec![""], vec!["a b"], vec!["a", "a"], vec!["ä"]] {
            assert!(key(&headers(&bad)).is_err(), "{bad:?}");
        }
        assert!(key(&headers(&[&"k".repeat(80)])).is_ok() && key(&headers(&[&"k".repeat(81)])).is_err());
    }
}
