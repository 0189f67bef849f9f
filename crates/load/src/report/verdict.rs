//! Decides whether a run is valid. Each reason that makes it invalid, and each note about something unexpected, is one
//! line with advice. Uses the summary only; docs/load-summary.md explains the thresholds.

use crate::measure::histogram::TimeHistogram;
use crate::measure::times::Times;
use crate::messages::MessagesSummary;
use crate::report::print::time;
use crate::report::summary::Summary;

/// Lateness and slip below this do not matter in a measurement over a network ...
const DELAY_NS: f64 = 1e6;
/// ... and neither do those below this share of the median response.
const DELAY_SHARE: f64 = 0.1;
/// Fewer values are not enough for a 99th percentile ...
const DELAYS_MIN: u64 = 1_000;
/// ... and fewer than this not even for a median.
const MEDIAN_MIN: u64 = 20;
/// An open loop that achieves less than this share of the offered rate did not keep up, if most seconds were behind ...
const ACHIEVED_SHARE: f64 = 0.99;
/// ... and an open loop that achieves less than this share did not keep up in any case.
const ACHIEVED_SHARE_MIN: f64 = 0.95;
/// The largest share of values that may remain unjudged for staleness, unless the run tolerates more failures.
const UNJUDGED_SHARE: f64 = 0.01;
/// In a run with at least this many whole seconds, most of them must have been behind.
const SECONDS_MIN: usize = 3;
/// A generator that is busy for more than this share of its threads' time may be the bottleneck itself.
const BUSY_SHARE: f64 = 0.9;
/// A larger share of misses after a prefill, or of errors, is worth a note.
const MISS_SHARE: f64 = 0.001;
const ERROR_SHARE: f64 = 0.001;
/// The tolerated deviation from N = X (R + Z).
const LAW_SHARE: f64 = 0.05;
/// The law is checked only in windows of at least this many of the longest cycles of a client. The requests cut off at
/// the edges are then below that share.
const LAW_CYCLES: f64 = 20.0;
/// A closed loop may have no answer in this share of its seconds, if its requests fail as well. A
/// run that tolerates more failures tolerates more such seconds.
const SILENT_SHARE: f64 = 0.05;
/// At this rate, a second without an answer is very unlikely to be chance.
const STEADY_PER_S: f64 = 20.0;
/// The mean of this many exponential think times is within that share with three standard errors.
const LAW_THOUGHTS: f64 = 3_600.0;

/// All reasons that make the run invalid. `broken` is what went wrong with the servers.
pub(crate) fn reasons(summary: &Summary, broken: Option<&str>) -> Vec<String> {
    let mut reasons = verification(summary);
    reasons.extend(summary.messages.iter().flat_map(MessagesSummary::reasons));
    reasons.extend(
        broken.map(|broken| format!("{broken}; look at the server's log; what was measured until then is kept")),
    );
    let behind = behind(summary);
    // A run in which no intended request was answered in the window, but older ones were, was only behind: that reason
    // suffices.
    if summary.totals.requests == 0 && (summary.totals.completed == 0 || behind.is_none()) {
        reasons.push(
            "nothing was measured: no request was answered without an error within the window; \
             look at the errors, or measure for longer"
                .into(),
        );
    }
    reasons.extend(failed(summary));
    reasons.extend(frozen(summary));
    reasons.extend(late(summary));
    reasons.extend(behind);
    reasons.extend(unexpected_misses(summary));
    reasons
}

/// Everything unexpected that does not make the run invalid.
pub(crate) fn notes(summary: &Summary) -> Vec<String> {
    let found = [
        stopped(summary),
        failures(summary),
        silence(summary).filter(|_| frozen(summary).is_none()),
        misses(summary),
        slipping(summary),
        busy(summary),
        interactive_law(summary),
    ];
    let of_messages = summary.messages.iter().flat_map(MessagesSummary::notes);
    found.into_iter().flatten().chain(of_messages).collect()
}

/// Values that differ from what was set, and replies that match no request.
fn verification(summary: &Summary) -> Vec<String> {
    let verified = summary.verification;
    let found = [
        (verified.wrong, "belong to another key; the server, or a proxy before it, mixes up values"),
        (verified.torn, "are torn (no single set wrote them); the server, or a proxy before it, damages values"),
        (
            verified.stale,
            "are stale (older than the last acknowledged set, or not of this run); writes are lost, or another program \
             writes these keys: give each generator its own --key-prefix",
        ),
    ];
    let found = found.into_iter().filter(|(values, _)| *values > 0);
    let mut reasons: Vec<String> =
        found.map(|(values, what)| format!("{values} of {} values {what}", verified.checked)).collect();
    // With noreply no set is acknowledged, so staleness cannot be judged in such a run.
    let unjudged_max = UNJUDGED_SHARE.max(summary.settings.failed_max);
    if verified.unjudged as f64 > unjudged_max * verified.checked as f64 && !summary.settings.noreply {
        reasons.push(format!(
            "{} of {} values could not be judged for staleness, because a set of their key had failed; the limit is {:.0} %; \
             look at the errors",
            verified.unjudged,
            verified.checked,
            100.0 * unjudged_max
        ));
    }
    if verified.unexpected_reply > 0 {
        reasons.push(format!(
            "{} replies matched no request; the server, or a proxy before it, loses the order of replies",
            verified.unexpected_reply
        ));
    }
    reasons
}

/// More failed requests than are tolerated.
fn failed(summary: &Summary) -> Option<String> {
    let (errors, settings) = (summary.totals.errors, &summary.settings);
    let all = errors + summary.totals.requests;
    let is_above = summary.totals.requests > 0 && errors as f64 > settings.failed_max * all as f64;
    is_above.then(|| {
        format!(
            "{errors} of {all} requests failed, which is {:.2} %, and {} % is tolerated (--failed-max); rates and means do not \
             include them; look at the errors",
            100.0 * errors as f64 / all as f64,
            100.0 * settings.failed_max
        )
    })
}

/// An open loop in which the generator itself was late, so that its delay is part of the response times.
fn late(summary: &Summary) -> Option<String> {
    let lateness = read(summary.lateness.as_ref()?)?;
    let ((percent, delay_ns), limit_ns) = (tail(&lateness)?, delay_limit_ns(summary)?);
    let advice = if summary.cpu.share > BUSY_SHARE {
        "it was busy all the time; offer less, or use more --threads or generators"
    } else {
        "it was not busy itself, so other programs kept it from running; give it a core of its own"
    };
    (delay_ns > limit_ns).then(|| {
        format!(
            "the generator was late: {percent} % of requests were sent {} later than possible, or more ({} is tolerated), so the response \
             times include its own delay; {advice}",
            time(delay_ns),
            time(limit_ns)
        )
    })
}

/// An open loop whose generator or server did not keep up: there is no steady state to measure.
fn behind(summary: &Summary) -> Option<String> {
    let (totals, settings) = (&summary.totals, &summary.settings);
    let intended = totals.intended?;
    let ended = totals.completed + totals.errors;
    let missing = intended.saturating_sub(ended);
    let in_flight = (settings.clients * settings.pipeline) as u64;
    let is_below = |share: f64| move |ended: u64, intended: u64| (ended as f64) < share * intended as f64;
    let is_behind = is_below(ACHIEVED_SHARE);
    let measured: Vec<_> = summary.seconds.iter().filter(|second| second.measured).collect();
    let behind =
        measured.iter().filter(|second| is_behind(second.requests + second.errors, second.intended.unwrap_or(0)));
    // A single stall at the end of the window does not mean that the rate cannot be reached.
    let is_lasting = measured.len() < SECONDS_MIN || 2 * behind.count() > measured.len();
    let unsent = totals.unsent.unwrap_or(0);
    let is_too_low = match settings.achieved_min {
        Some(share) => is_below(share)(ended, intended),
        None => is_below(ACHIEVED_SHARE_MIN)(ended, intended) || is_behind(ended, intended) && is_lasting,
    };
    if is_too_low && missing > in_flight {
        return Some(format!(
            "the rate was not reached: {:.0}/s of {:.0}/s were answered within the window, {} of {intended} requests were never \
             sent; offer less, or, if the server has capacity left, use more --clients; --achieved-min sets the share that is enough",
            summary.throughput_per_s,
            totals.offered_per_s.unwrap_or(0.0),
            unsent
        ));
    }
    (unsent > 0 && settings.achieved_min.is_none()).then(|| {
        format!(
            "{unsent} of {intended} requests that were due within the window were not sent until long after it, so the mean \
             does not include the slowest; offer less, or measure for longer"
        )
    })
}

/// A hit ratio below the expected one.
fn unexpected_misses(summary: &Summary) -> Option<String> {
    let expected = summary.settings.expect_hit_ratio?;
    let Some(ratio) = hit_ratio(summary) else {
        return (summary.totals.requests > 0).then(|| {
            format!("no key was read, so the expected hit ratio of {expected} cannot be checked; see --ratio")
        });
    };
    (ratio < expected).then(|| {
        format!(
            "the hit ratio is {ratio:.4}, and {expected} was expected (--expect-hit-ratio): does the server have enough memory \
             for all keys, and were they set?"
        )
    })
}

fn stopped(summary: &Summary) -> Option<String> {
    let done = match (summary.settings.requests, summary.settings.test_time_s) {
        (Some(requests), _) => format!("{} of {requests} requests", summary.totals.requests),
        (None, Some(test_time_s)) if summary.measured_s < test_time_s => {
            format!("{:.1} of {test_time_s:.1} s", summary.measured_s)
        }
        // A run does not end when servers are lost: it waits for them until its time is over.
        (None, _) => return None,
    };
    summary.partial.then(|| format!("ended early, after {done}; what was measured until then is kept"))
}

fn failures(summary: &Summary) -> Option<String> {
    let (errors, all) = (summary.totals.errors, summary.totals.errors + summary.totals.requests);
    (errors as f64 > ERROR_SHARE * all as f64 && failed(summary).is_none()).then(|| {
        format!("{errors} of {all} requests failed; percentiles count them as slower than any time, means and rates omit them")
    })
}

/// A closed loop whose server stopped answering. Few requests fail then, because every client waits for one.
fn frozen(summary: &Summary) -> Option<String> {
    let (silent, measured) = silent_seconds(summary)?;
    let is_frozen = !summary.settings.is_open() && summary.totals.errors > 0;
    (is_frozen && silent as f64 > SILENT_SHARE.max(summary.settings.failed_max) * measured as f64).then(|| {
        format!(
            "no request was answered in {silent} of {measured} whole seconds, and {} failed: the server stopped answering, and \
             throughput and means are of both times together; look at the server's log",
            summary.totals.errors
        )
    })
}

fn silence(summary: &Summary) -> Option<String> {
    silent_seconds(summary).map(|(silent, measured)| {
        format!(
            "no request was answered in {silent} of {measured} whole seconds: the server, the network or the machine stood still"
        )
    })
}

/// The number of seconds without any answer in a run that usually has many answers per second, and the number of all
/// seconds. `None` if there are no silent seconds.
fn silent_seconds(summary: &Summary) -> Option<(usize, usize)> {
    let measured: Vec<_> = summary.seconds.iter().filter(|second| second.measured).collect();
    let silent = measured.iter().filter(|second| second.requests == 0).count();
    (silent > 0 && summary.throughput_per_s >= STEADY_PER_S).then_some((silent, measured.len()))
}

fn misses(summary: &Summary) -> Option<String> {
    let ratio = hit_ratio(summary)?;
    (summary.settings.prefill && summary.settings.expect_hit_ratio.is_none() && 1.0 - ratio > MISS_SHARE).then(|| {
        format!(
            "{:.1} % of the keys read were not found, though all were set before the run: the server evicts, lost data, \
             or another program deletes; --expect-hit-ratio makes this a condition",
            100.0 * (1.0 - ratio)
        )
    })
}

/// An open loop whose requests waited for a free client. The response times include the wait, but the server did not
/// see the offered load.
fn slipping(summary: &Summary) -> Option<String> {
    summary.settings.is_open().then_some(())?;
    let slip = read(&summary.operations.all.slip)?;
    let ((percent, delay_ns), limit_ns) = (tail(&slip)?, delay_limit_ns(summary)?);
    (delay_ns > limit_ns && late(summary).is_none()).then(|| {
        format!(
            "{percent} % of requests waited {} or longer for a free client, because all {} were busy; response times include the wait, \
             service times do not; with more --clients or --pipeline they would wait in the server",
            time(delay_ns),
            summary.settings.clients
        )
    })
}

/// A closed loop without think times looks for the maximum rate. That may be the generator's maximum.
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

/// The interactive response time law (Denning and Buzen, 1978): N = X (R + Z). If it fails, clients stood still or
/// counts are wrong.
fn interactive_law(summary: &Summary) -> Option<String> {
    let (settings, response) = (&summary.settings, &summary.operations.all.response);
    let longest_s = response.max_ns as f64 / 1e9 + settings.think_mean_s;
    let thoughts = if settings.think_mean_s > 0.0 { LAW_THOUGHTS } else { 0.0 };
    // In a replay, the number of requests in flight depends on the trace.
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
            "X (R + Z) is {found:.1} and N is {clients:.0}: they must be equal in a closed loop, so the clients or the machine stalled; \
             measure again"
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

/// A percentage of the requests, and the delay that this percentage reaches: 1 %, or 50 % if there are few requests.
fn tail(delays: &TimeHistogram) -> Option<(u32, f64)> {
    let percent = match delays.count() {
        DELAYS_MIN.. => 1,
        MEDIAN_MIN.. => 50,
        _ => return None,
    };
    Some((percent, delays.percentile_ns(100.0 - f64::from(percent))? as f64))
}

/// The largest tolerated delay of the generator.
fn delay_limit_ns(summary: &Summary) -> Option<f64> {
    let response = read(&summary.operations.all.response)?;
    // If half of the requests have no answer, the longest time is the best known bound.
    let median_ns = response.percentile_ns(50.0).unwrap_or(response.max_ns());
    Some(DELAY_NS.max(DELAY_SHARE * median_ns as f64))
}

#[cfg(test)]
mod tests;
