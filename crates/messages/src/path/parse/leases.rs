//! Requests about leases: to receive, and what becomes of what was received.

use super::options::{positive_ms, time_ms};
use crate::http::problem::Problem;
use crate::interface::documents::Leases;
use crate::path::lease::{Lease, Settlement, Settling};
use crate::path::parse::request::{Asked, Exchange, Shape};
use crate::path::work::{Scope, Wish, Work};

pub(crate) fn receive(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["for", "from", "max", "wait", "lease"])?;
    let (wanted, shape) = parameters.max()?;
    let scope =
        Scope { queue: exchange.name("queue")?, receiver: parameters.name("for")?, sender: parameters.name("from")? };
    let lease_ms = lease_ms(exchange, parameters.get("lease"))?;
    Ok(Asked { work: Work::Receive(Wish { scope, wanted }, lease_ms), shape, wait: parameters.wait()? })
}

pub(crate) fn acknowledge(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    Ok(single(exchange, Settlement::Acknowledge, 0))
}

pub(crate) fn extend(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["lease"])?;
    Ok(single(exchange, Settlement::Extend, lease_ms(exchange, parameters.get("lease"))?))
}

pub(crate) fn give_back(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    let parameters = exchange.parameters(&["delay"])?;
    let delay = parameters.get("delay").unwrap_or("0s");
    Ok(single(exchange, Settlement::Return, time_ms("delay", delay, exchange.limits.delay)?))
}

pub(crate) fn acknowledge_batch(exchange: &Exchange<'_>) -> Result<Asked, Problem> {
    exchange.parameters(&[])?;
    exchange.demand_json()?;
    let Leases { leases: words } =
        serde_json::from_slice(&exchange.body).map_err(|error| Problem::unreadable(format!("body: {error}")))?;
    let most = exchange.limits.batch_messages;
    if words.is_empty() || words.len() > most {
        let detail = format!("leases: there are {}; a batch has 1 to {most}", words.len());
        return Err(Problem::unreadable(detail));
    }
    let leases = words.iter().map(|word| Lease::read(word)).collect();
    let settling = Settling { how: Settlement::Acknowledge, leases, words, time_ms: 0, is_single: false };
    Ok(Asked { shape: Shape::Document, ..Asked::plain(Work::Settle(settling)) })
}

fn single(exchange: &Exchange<'_>, how: Settlement, time_ms: i64) -> Asked {
    let word = exchange.path.get("lease").cloned().unwrap_or_default();
    let settling = Settling { how, leases: vec![Lease::read(&word)], words: vec![word], time_ms, is_single: true };
    Asked::plain(Work::Settle(settling))
}

/// Of a parameter; 0 for the queue's own.
fn lease_ms(exchange: &Exchange<'_>, text: Option<&str>) -> Result<i64, Problem> {
    text.map_or(Ok(0), |text| positive_ms("lease", text, exchange.limits.lease))
}
