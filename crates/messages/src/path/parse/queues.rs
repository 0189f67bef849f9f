//! Parses requests about queues, with the JSON document of a queue's settings.

use super::options::positive_ms;
use crate::config::Limits;
use crate::http::problem::Problem;
use crate::interface::documents::QueueSettingsDocument;
use crate::interface::rules::{ATTEMPTS_MAX, BACKOFF_MAX, NAMES_MAX, is_name};
use crate::observe::limits::RequestLimit;
use crate::path::parse::request::{HttpRequest, ParsedRequest, json_object, number};
use crate::path::work::{DEFAULT_ATTEMPTS, Page, QueueSettings, Work};

pub(crate) fn create_queue(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    let name = request.name("queue")?;
    if !request.body.is_empty() {
        request.require_json()?;
    }
    let settings = read(&name, &request.body, request.limits)?;
    Ok(ParsedRequest::plain(Work::CreateQueue(name, settings)))
}

pub(crate) fn delete_queue(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    Ok(ParsedRequest::plain(Work::DeleteQueue(request.name("queue")?)))
}

pub(crate) fn show_queue(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    request.parameters(&[])?;
    Ok(ParsedRequest::plain(Work::ShowQueue(request.name("queue")?)))
}

pub(crate) fn list_queues(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    Ok(ParsedRequest::plain(Work::ListQueues(page(request)?)))
}

pub(crate) fn waiting_queues(request: &HttpRequest<'_>) -> Result<ParsedRequest, Problem> {
    Ok(ParsedRequest::plain(Work::WaitingQueues(request.name("receiver")?, page(request)?)))
}

fn page(request: &HttpRequest<'_>) -> Result<Page, Problem> {
    let parameters = request.parameters(&["after", "max"])?;
    let most = (NAMES_MAX, RequestLimit::Interface);
    let max = parameters.get("max").map_or(Ok(NAMES_MAX), |text| number("max", text, most))?;
    Ok(Page { after: parameters.name("after")?, max, prefixes: None })
}

/// The settings in the document; none without a document.
fn read(name: &str, body: &[u8], limits: &Limits) -> Result<Option<QueueSettings>, Problem> {
    if body.is_empty() {
        return Ok(None);
    }
    let QueueSettingsDocument { attempts, dead_letter_queue, expiry, lease, backoff } = json_object(body)?;
    match (&dead_letter_queue, attempts) {
        (None, Some(_)) => {
            let detail = "attempts: has no effect without dead_letter_queue; give both";
            return Err(Problem::invalid_request(detail));
        }
        (Some(_), Some(number)) if !(1..=ATTEMPTS_MAX).contains(&number) => {
            let detail = format!("attempts: {number} is not a number from 1 to {ATTEMPTS_MAX}");
            return Err(match number > ATTEMPTS_MAX {
                true => Problem::over(RequestLimit::Interface, detail),
                false => Problem::invalid_request(detail),
            });
        }
        (Some(other), _) if !is_name(other) => return Err(Problem::invalid_name("dead_letter_queue")),
        (Some(other), _) if other == name => {
            return Err(Problem::invalid_request("dead_letter_queue: it must be another queue"));
        }
        _ => {}
    }
    let time = |what: &str, text: Option<String>, longest, limit| {
        text.map(|text| positive_ms(what, &text, longest, limit)).transpose()
    };
    Ok(Some(QueueSettings {
        attempts: dead_letter_queue.is_some().then(|| attempts.unwrap_or(DEFAULT_ATTEMPTS)),
        dead_letter_queue,
        expiry_ms: time("expiry", expiry, limits.expiry, RequestLimit::ExpiryLimit)?,
        lease_ms: time("lease", lease, limits.lease, RequestLimit::LeaseLimit)?,
        backoff_ms: time("backoff", backoff, BACKOFF_MAX, RequestLimit::Interface)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_parsed_and_malformed_ones_are_refused() {
        let limits = Limits::default();
        assert_eq!(read("q", b"", &limits), Ok(None));
        assert_eq!(read("q", b"{}", &limits), Ok(Some(QueueSettings::default())));
        let settings =
            read("q", br#"{"dead_letter_queue":"dead","expiry":"1h","lease":"30s"}"#, &limits).unwrap().unwrap();
        assert_eq!(
            (settings.attempts, settings.expiry_ms, settings.lease_ms),
            (Some(20), Some(3_600_000), Some(30_000))
        );
        let whole = read("q", br#"{"dead_letter_queue":"dead","attempts":434.0}"#, &limits).unwrap().unwrap();
        assert_eq!(whole.attempts, Some(434), "the same number in JSON");
        let bad = [
            "[]",
            r#"{"attempts":1.5,"dead_letter_queue":"dead"}"#,
            r#"{"attempts":1e300,"dead_letter_queue":"dead"}"#,
            r#"{"attempts":"3","dead_letter_queue":"dead"}"#,
            r#"{"attempt":1}"#,
            r#"{"attempts":3}"#,
            r#"{"attempts":0,"dead_letter_queue":"dead"}"#,
            r#"{"attempts":1001,"dead_letter_queue":"dead"}"#,
            r#"{"dead_letter_queue":"q"}"#,
            r#"{"dead_letter_queue":"-"}"#,
            r#"{"expiry":"9601h"}"#,
            r#"{"lease":"13h"}"#,
            r#"{"lease":"0s"}"#,
            r#"{"lease":30}"#,
            r#"{"backoff":"2h"}"#,
            r#"{"backoff":"0s"}"#,
        ];
        for text in bad {
            assert!(read("q", text.as_bytes(), &limits).is_err(), "{text}");
        }
    }
}
