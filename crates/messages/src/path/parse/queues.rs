//! Requests about queues, and a queue's settings from the JSON document with which it is created or changed.

use super::options::positive_ms;
use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::documents;
use crate::interface::rules::{ATTEMPTS_MAX, is_name};
use crate::path::parse::request::{Asked, Exchange};
use crate::path::work::{ATTEMPTS, Settings, Work};

pub(crate) fn create_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    let name = exchange.name("queue")?;
    if !exchange.body.is_empty() {
        exchange.demand_json()?;
    }
    let settings = read(&name, &exchange.body, exchange.limits)?;
    Ok(Asked::plain(Work::CreateQueue(name, settings)))
}

pub(crate) fn delete_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::DeleteQueue(exchange.name("queue")?)))
}

pub(crate) fn show_queue(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::ShowQueue(exchange.name("queue")?)))
}

pub(crate) fn list_queues(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::ListQueues))
}

pub(crate) fn waiting_queues(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(Asked::plain(Work::Waiting(exchange.name("receiver")?)))
}

pub(crate) fn probe(_: &Exchange<'_>) -> Result<Asked, Problem> {
    Ok(Asked::plain(Work::Probe))
}

/// Settings of the queue with this name; none when there is no document.
fn read(name: &str, body: &[u8], limits: &Limits) -> Result<Option<Settings>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let document: documents::Settings =
        serde_json::from_slice(body).map_err(|error| Problem::unreadable(format!("body: {error}")))?;
    let documents::Settings { attempts, dead_letters, expiry, lease } = document;
    match (&dead_letters, attempts) {
        (None, Some(_)) => {
            let detail = "attempts: without dead_letters there is nowhere to put what was tried so often";
            return Err(Problem::unreadable(detail));
        }
        (Some(_), Some(number)) if !(1..=ATTEMPTS_MAX).contains(&number) => {
            return Err(Problem::unreadable(format!("attempts: {number} is not a number from 1 to {ATTEMPTS_MAX}")));
        }
        (Some(other), _) if !is_name(other) => return Err(Problem::name("dead_letters")),
        (Some(other), _) if other == name => {
            return Err(Problem::unreadable("dead_letters: it must be another queue"));
        }
        _ => {}
    }
    let time =
        |what: &str, text: Option<String>, longest| text.map(|text| positive_ms(what, &text, longest)).transpose();
    Ok(Some(Settings {
        attempts: dead_letters.is_some().then(|| attempts.unwrap_or(ATTEMPTS)),
        dead_letters,
        expiry_ms: time("expiry", expiry, limits.expiry)?,
        lease_ms: time("lease", lease, limits.lease)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_nonsense_is_refused() {
        let limits = Limits::default();
        assert_eq!(read("q", b"", &limits), Ok(None));
        assert_eq!(read("q", b"{}", &limits), Ok(Some(Settings::default())));
        let settings = read("q", br#"{"dead_letters":"dead","expiry":"1h","lease":"30s"}"#, &limits).unwrap().unwrap();
        assert_eq!(
            (settings.attempts, settings.expiry_ms, settings.lease_ms),
            (Some(5), Some(3_600_000), Some(30_000))
        );
        let whole = read("q", br#"{"dead_letters":"dead","attempts":434.0}"#, &limits).unwrap().unwrap();
        assert_eq!(whole.attempts, Some(434), "the same number in JSON");
        let bad = [
            "[]",
            r#"{"attempts":1.5,"dead_letters":"dead"}"#,
            r#"{"attempts":1e300,"dead_letters":"dead"}"#,
            r#"{"attempts":"3","dead_letters":"dead"}"#,
            r#"{"attempt":1}"#,
            r#"{"attempts":3}"#,
            r#"{"attempts":0,"dead_letters":"dead"}"#,
            r#"{"attempts":1001,"dead_letters":"dead"}"#,
            r#"{"dead_letters":"q"}"#,
            r#"{"dead_letters":"-"}"#,
            r#"{"expiry":"9601h"}"#,
            r#"{"lease":"13h"}"#,
            r#"{"lease":"0s"}"#,
            r#"{"lease":30}"#,
        ];
        for text in bad {
            assert!(read("q", text.as_bytes(), &limits).is_err(), "{text}");
        }
    }
}
