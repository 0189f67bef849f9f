//! Whether a run is to be believed: what spoils it, and what is worth knowing about it, one line each with what to do.
//! Judges what the summary says and nothing else; docs/load-summary.md gives the reasons for the thresholds.

use crate::measure::histogram::TimeHistogram;
use crate::measure::times::Times;
use crate::messages::MessagesSummary;
use crate::report::print::time;
use crate::report::summary::Summary;

/// Lateness and slip below this matter to nobody who measures over a network ...
const DELAY_NS: f64 = 1e6;
/// ... and neither do those below this share of the median response.
const DELAY_SHARE: f64 = 0.1;
/// Fewer values say nothing about a 99th percentile.
const DELAYS_MIN: u64 = 1_000;
/// An open loop that achieves less than this share of what it offered could not keep up.
const ACHIEVED_SHARE: f64 = 0.99;
/// With so many whole seconds or more, most of them must have been behind.
const SECONDS_MIN: usize = 3;
/// A generator that is busy for more than this share of its threads' time may be the limit itself.
const BUSY_SHARE: f64 = 0.9;
/// More misses than this share, after a prefill, are worth a note; and so are more errors.
const MISS_SHARE: f64 = 0.001;
const ERROR_SHARE: f64 = 0.001;
/// How far N = X (R + Z) may be off ...
const LAW_SHARE: f64 = 0.05;
/// ... in a window that is so many times the longest cycle of a client or more: what is cut at its edges is less than that share then.
const LAW_CYCLES: f64 = 20.0;
/// The mean of so many exponential think times is within that share with three standard errors.
const LAW_THOUGHTS: f64 = 3_600.0;

/// Everything that spoils the run. `broken` is what went wrong with the servers.
pub(crate) fn reasons(summary: &Summary, broken: Option<&str>) -> Vec<String> {
    let mut reasons = verification(summary);
    reasons.extend(summary.messages.iter().flat_map(MessagesSummary::reasons));
    reasons.extend(
        broken.map(|broken| format!("{broken}; look at the server's log, what was measured until then is kept")),
    );
    let behind = behind(summary);
    // What is only behind its schedule by more than the window has that reason, and not this one.
    if summary.totals.requests == 0 && (summary.totals.completed == 0 || behind.is_none()) {
        reasons.push(
            "nothing was measured: no request was answered within the window other than by an error; \
             look at the errors, or measure for longer"
                .into(),
        );
    }
    reasons.extend(late(summary));
    reasons.extend(behind);
    reasons.extend(unexpected_misses(summary));
    reasons
}

/// What does not spoil the run, but may surprise.
pub(crate) fn notes(summary: &Summary) -> Vec<String> {
    let found = [
        stopped(summary),
        failures(summary),
        misses(summary),
        slipping(summary),
        busy(summary),
        interactive_law(summary),
    ];
    let of_messages = summary.messages.iter().flat_map(MessagesSummary::notes);
    found.into_iter().flatten().chain(of_messages).collect()
}

/// Values that are not what was set, and replies that are none.
fn verification(summary: &Summary) -> Vec<String> {
    let verified = summary.verification;
    let found = [
        (verified.wrong, "belong to another key; the server, or what is before it, mixes up values"),
        (verified.torn, "are torn (not as any one set wrote them); the server, or what is before it, damages values"),
        (
            verified.stale,
            "are stale (older than the last acknowledged set, or not of this run); writes are lost, or somebody else writes \
             these keys: give each generator its own --key-prefix",
        ),
    ];
    let found = found.into_iter().filter(|(values, _)| *values > 0);
    let mut reasons: Vec<String> =
        found.map(|(values, what)| format!("{values} of {} values {what}", verified.checked)).collect();
    if verified.unexpected_reply > 0 {
        reasons.push(format!(
            "{} replies were not replies to what was asked; the server, or what is before it, loses the order of replies",
            verified.unexpected_reply
        ));
    }
    reasons
}

/// An open loop whose generator was itself too late: what it shows as response is partly its own doing.
fn late(summary: &Summary) -> Option<String> {
    let lateness = read(summary.lateness.as_ref()?)?;
    let (p99_ns, limit_ns) = (p99_ns(&lateness)?, delay_limit_ns(summary)?);
    let advice = if summary.cpu.share > BUSY_SHARE {
        "it was busy all the time: offer less, or use more --threads or generators"
    } else {
        "it was not busy itself, so other work kept it from running: leave it a core of its own"
    };
    (p99_ns > limit_ns).then(|| {
        format!(
            "the generator was late: 1 % of requests could have been sent {} earlier or more ({} is tolerated), so its own delay is \
             in the responses; {advice}",
            time(p99_ns),
            time(limit_ns)
        )
    })
}

/// An open loop that could not offer its rate, or whose server did not keep up: there is no steady state to be measured.
fn behind(summary: &Summary) -> Option<String> {
    let (totals, settings) = (&summary.totals, &summary.settings);
    let intended = totals.intended?;
    let ended = totals.completed + totals.errors;
    let missing = intended.saturating_sub(ended);
    let in_flight = (settings.clients * settings.pipeline) as u64;
    let is_behind = |ended: u64, intended: u64| (ended as f64) < ACHIEVED_SHARE * intended as f64;
    let measured: Vec<_> = summary.seconds.iter().filter(|second| second.measured).collect();
    let behind =
        measured.iter().filter(|second| is_behind(second.requests + second.errors, second.intended.unwrap_or(0)));
    // One stall as the window ends is not a rate that cannot be reached.
    let is_lasting = measured.len() < SECONDS_MIN || 2 * behind.count() > measured.len();
    let unsent = totals.unsent.unwrap_or(0);
    if is_behind(ended, intended) && missing > in_flight && is_lasting {
        return Some(format!(
            "the rate was not reached: {:.0}/s of {:.0}/s were answered within the window, {} of {intended} requests were never \
             sent; offer less, or, if the server has capacity left, use more --clients",
            summary.throughput_per_s,
            totals.offered_per_s.unwrap_or(0.0),
            unsent
        ));
    }
    (unsent > 0).then(|| {
        format!(
            "{unsent} of {intended} requests that were due within the window were not sent until long after it, so the slowest \
             responses are missing; offer less, or measure for longer"
        )
    })
}

/// Fewer hits than were asked for.
fn unexpected_misses(summary: &Summary) -> Option<String> {
    let expected = summary.settings.expect_hit_ratio?;
    let Some(ratio) = hit_ratio(summary) else {
        return (summary.totals.requests > 0)
            .then(|| format!("no key was read, so a hit ratio of {expected} cannot be expected; see --ratio"));
    };
    (ratio < expected).then(|| {
        format!(
            "the hit ratio is {ratio:.4}, and {expected} was expected (--expect-hit-ratio): does the server have the memory for all \
             keys, and were they set?"
        )
    })
}

fn stopped(summary: &Summary) -> Option<String> {
    let asked = match (summary.settings.requests, summary.settings.test_time_s) {
        (Some(requests), _) => format!("{} of {requests} requests", summary.totals.requests),
        (None, Some(test_time_s)) if summary.measured_s < test_time_s => {
            format!("{:.1} of {test_time_s:.1} s", summary.measured_s)
        }
        // Servers that were lost do not end it: it waits for them until its time is over.
        (None, _) => return None,
    };
    summary.partial.then(|| format!("ended early, after {asked}; what was measured until then is kept"))
}

fn failures(summary: &Summary) -> Option<String> {
    let (errors, all) = (summary.totals.errors, summary.totals.errors + summary.totals.requests);
    (errors as f64 > ERROR_SHARE * all as f64)
        .then(|| format!("{errors} of {all} requests failed; they are in no latency and in no rate"))
}

fn misses(summary: &Summary) -> Option<String> {
    let ratio = hit_ratio(summary)?;
    (summary.settings.prefill && summary.settings.expect_hit_ratio.is_none() && 1.0 - ratio > MISS_SHARE).then(|| {
        format!(
            "{:.1} % of the keys read were not found, though all were set before the run: the server evicts for want of memory, \
             lost data, or somebody deletes; --expect-hit-ratio makes this a condition",
            100.0 * (1.0 - ratio)
        )
    })
}

/// An open loop whose requests waited for a free client: the responses have it, but the server did not see the load come.
fn slipping(summary: &Summary) -> Option<String> {
    summary.settings.is_open().then_some(())?;
    let slip = read(&summary.operations.all.slip)?;
    let (p99_ns, limit_ns) = (p99_ns(&slip)?, delay_limit_ns(summary)?);
    (p99_ns > limit_ns && late(summary).is_none()).then(|| {
        format!(
            "1 % of requests waited {} or longer for a free client, all {} being busy; it is in the response and not in the service: \
             more --clients or --pipeline would let them wait in the server",
            time(p99_ns),
            summary.settings.clients
        )
    })
}

/// A closed loop without thinking is there to find the most that is possible: that may be the generator's most.
fn busy(summary: &Summary) -> Option<String> {
    let (cpu, settings) = (summary.cpu, &summary.settings);
    let saturates = !settings.is_open() && settings.think_mean_s == 0.0;
    (saturates && cpu.share > BUSY_SHARE).then(|| {
        format!(
            "the generator used {:.0} % of its {} thread(s): the rate may be its own limit and not the server's; \
             use more --threads or generators to know",
            cpu.share * 100.0,
            settings.threads
        )
    })
}

/// The interactive response time law (Denning and Buzen, 1978): N = X (R + Z). Where it fails, clients stood still or counts are wrong.
fn interactive_law(summary: &Summary) -> Option<String> {
    let (settings, response) = (&summary.settings, &summary.operations.all.response);
    let longest_s = response.max_ns as f64 / 1e9 + settings.think_mean_s;
    let thoughts = if settings.think_mean_s > 0.0 { LAW_THOUGHTS } else { 0.0 };
    // How many requests a replay has in flight depends on who asks in the trace.
    let can_be_judged = !settings.is_open()
        && settings.trace.is_none()
        && summary.errors.is_empty()
        && summary.measured_s >= LAW_CYCLES * longest_s
        && summary.totals.requests as f64 >= thoughts.max(1.0);
    can_be_judged.then_some(())?;
    let clients = (settings.clients * settings.pipeline) as f64;
    let found = summary.throughput_per_s * (response.mean_ns / 1e9 + settings.think_mean_s);
    ((found / clients - 1.0).abs() > LAW_SHARE).then(|| {
        format!(
            "X (R + Z) is {found:.1} and N is {clients:.0}: they must be equal in a closed loop, so clients stood still for a while, \
             or the machine did; measure again"
        )
    })
}

fn hit_ratio(summary: &Summary) -> Option<f64> {
    let read = summary.totals.hits + summary.totals.misses;
    (read > 0).then(|| summary.totals.hits as f64 / read as f64)
}

fn read(times: &Times) -> Option<TimeHistogram> {
    times.to_histogram().ok()
}

fn p99_ns(delays: &TimeHistogram) -> Option<f64> {
    (delays.count() >= DELAYS_MIN).then(|| delays.percentile_ns(99.0) as f64)
}

/// What a delay of the generator may be at most.
fn delay_limit_ns(summary: &Summary) -> Option<f64> {
    let response = read(&summary.operations.all.response)?;
    Some(DELAY_NS.max(DELAY_SHARE * response.percentile_ns(50.0) as f64))
}

#[cfg(test)]
mod tests;
