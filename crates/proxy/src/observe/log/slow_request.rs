//! A request that took long, with its stages: the line that says where the time went.

use crate::config::{LogLevel, LoggedKeys};
use crate::observe::ended_request::{EndedLeg, EndedRequest};
use crate::observe::log::line::Line;
use clock::INTERVALS;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

impl EndedRequest {
    /// The line. `backends` are their names.
    pub(crate) fn line(&self, keys: LoggedKeys, backends: &[String]) -> Line {
        let (verb, key) = (self.verb.name(), self.key_text(keys));
        let name = |leg: &EndedLeg| backends.get(usize::from(leg.backend)).cloned().unwrap_or_default();
        let stages =
            INTERVALS.iter().zip(self.intervals()).map(|(interval, ns)| format!("{} {}", interval.name, ms(ns)));
        let stages: Vec<String> = stages.collect();
        let legs = self.legs.iter().map(|leg| match leg.took_ns() {
            Some(ns) => format!("{} {} {} ms", name(leg), leg.outcome.name(), ms(ns)),
            None => format!("{} {}", name(leg), leg.outcome.name()),
        });
        let mut legs: Vec<String> = legs.collect();
        if self.legs_total > legs.len() {
            legs.push(format!("{} more", self.legs_total - legs.len()));
        }
        let quoted = match keys {
            LoggedKeys::Plain => key.as_ref().map(|key| format!("\"{key}\"")),
            _ => key.clone(),
        };
        let part = if self.is_part { ", a part of a longer line," } else { "" };
        let of_key = match (quoted, self.keys) {
            (None, 0 | 1) => part.to_string(),
            (None, keys) => format!(" of {keys} keys{part}"),
            (Some(key), 0 | 1) => format!(" of key {key}{part}"),
            (Some(key), keys) => {
                let comma = if part.is_empty() { "," } else { part };
                format!(" of {keys} keys{comma} the first is {key}")
            }
        };
        let client = self.client.map_or_else(|| format!("connection {}", self.connection), |ip| self.client_text(ip));
        let backends = if legs.is_empty() { "none".into() } else { legs.join(", ") };
        let message = format!(
            "slow request: {verb}{of_key} took {} ms: {} ms; {}; backends: {backends}; client {client}, {} bytes in, {} out",
            ms(self.total_ns()),
            stages.join(", "),
            self.outcome.name(),
            self.request_bytes,
            self.reply_bytes,
        );
        Line { level: LogLevel::Warn, event: "slow_request", message, fields: self.fields(key, name) }
    }

    fn fields(&self, key: Option<String>, name: impl Fn(&EndedLeg) -> String) -> Vec<(&'static str, Value)> {
        let us = |ns: u64| ns as f64 / 1000.0;
        let stages: Map<String, Value> = INTERVALS
            .iter()
            .zip(self.intervals())
            .map(|(interval, ns)| (interval.name.into(), us(ns).into()))
            .collect();
        let leg = |leg: &EndedLeg| json!({"backend": name(leg), "outcome": leg.outcome.name(), "took_us": leg.took_ns().map(us)});
        vec![
            ("operation", self.verb.name().into()),
            ("outcome", self.outcome.name().into()),
            ("key", key.into()),
            ("keys", self.keys.into()),
            ("is_part", self.is_part.into()),
            ("hits", self.hits.into()),
            ("request_bytes", self.request_bytes.into()),
            ("reply_bytes", self.reply_bytes.into()),
            ("client", self.client.map(|ip| self.client_text(ip)).into()),
            ("connection", self.connection.into()),
            ("sequence", self.sequence.into()),
            ("total_us", us(self.total_ns()).into()),
            ("stages_us", stages.into()),
            ("backends", self.legs.iter().map(leg).collect::<Vec<_>>().into()),
            ("backends_total", self.legs_total.into()),
        ]
    }

    fn client_text(&self, ip: IpAddr) -> String {
        match ip {
            IpAddr::V4(ip) => format!("{ip}:{}", self.port),
            IpAddr::V6(ip) => format!("[{ip}]:{}", self.port),
        }
    }
}

/// Nanoseconds as milliseconds.
fn ms(ns: u64) -> String {
    format!("{:.3}", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clock::{Nanos, STAGES};
    use records::Outcome;
    use wire::Verb;

    fn slow() -> EndedRequest {
        let leg = |backend, outcome, answered| EndedLeg {
            backend,
            outcome,
            hits: 0,
            request_bytes: 0,
            reply_bytes: 0,
            is_hedge: false,
            dispatched: Nanos::UNSET,
            sent: Nanos(1),
            answered,
        };
        let intervals = [1000, 2000, 3000, 0, 4000, 20_000_000, 5_000];
        let mut stamps = [1; STAGES];
        for (index, interval) in intervals.into_iter().enumerate() {
            stamps[index + 1] = stamps[index] + interval;
        }
        EndedRequest {
            verb: Verb::Get,
            outcome: Outcome::Answered,
            key: b"user:\x07".to_vec(),
            keys: 2,
            is_part: false,
            hits: 1,
            request_bytes: 20,
            reply_bytes: 131,
            client: Some([10, 0, 0, 9].into()),
            port: 5000,
            connection: 3,
            sequence: 8,
            stamps,
            legs: vec![leg(0, Outcome::Answered, Nanos(20_000_001)), leg(1, Outcome::Timeout, Nanos::UNSET)],
            legs_total: 3,
        }
    }

    #[test]
    fn the_line_says_where_the_time_went() {
        let names = ["10.0.0.1:1".to_string(), "10.0.0.2:1".to_string()];
        let line = slow().line(LoggedKeys::Plain, &names);
        assert_eq!(
            line.message,
            "slow request: get of 2 keys, the first is \"user:\\x07\" took 20.015 ms: parse 0.001, route 0.002, admit 0.003, \
             queue 0.000, send 0.004, backend 20.000, reply 0.005 ms; answered; backends: 10.0.0.1:1 answered 20.000 ms, \
             10.0.0.2:1 timeout, 1 more; client 10.0.0.9:5000, 20 bytes in, 131 out"
        );
        let field =
            |name| line.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap();
        assert_eq!(field("total_us"), 20_015.0);
        assert_eq!(field("stages_us")["backend"], 20_000.0);
        assert_eq!(field("backends")[1], json!({"backend": "10.0.0.2:1", "outcome": "timeout", "took_us": null}));
    }

    #[test]
    fn keys_can_be_hashed_or_hidden() {
        let text = |keys, key: &[u8]| EndedRequest { key: key.to_vec(), ..slow() }.line(keys, &[]).message;
        assert!(text(LoggedKeys::Hashed, b"secret").contains("xxh3:"));
        for keys in [LoggedKeys::Hashed, LoggedKeys::Hidden] {
            assert!(!text(keys, b"secret").contains("secret"));
        }
        assert_eq!(text(LoggedKeys::Hashed, b"a"), text(LoggedKeys::Hashed, b"a"));
        assert_ne!(text(LoggedKeys::Hashed, b"a"), text(LoggedKeys::Hashed, b"b"));
        assert!(text(LoggedKeys::Plain, b"").contains("get of 2 keys took"));
        let part = EndedRequest { is_part: true, ..slow() }.line(LoggedKeys::Plain, &[]).message;
        assert!(part.contains("get of 2 keys, a part of a longer line, the first is \"user:\\x07\" took"), "{part}");
    }
}
