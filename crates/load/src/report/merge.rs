//! Merges the summaries of several generators that ran at the same time. Counts and histograms add up exactly, and
//! percentiles are read from the sum. Knows summaries only, not the runs behind them.

use crate::measure::histogram::TimeHistogram;
use crate::measure::part::OperationTally;
use crate::measure::seconds::{Second, sum_of_known};
use crate::measure::tally::count_error;
use crate::measure::times::Times;
use crate::report::settings::MIXED;
use crate::report::summary::{
    Cpu, FORMAT, MergedPart, OperationSummary, Operations, Summary, Totals, Verification, per_second,
};
use std::collections::{BTreeMap, BTreeSet};

mod settings;

/// A note is added if the windows overlap by less than this share of their whole extent.
const OVERLAP_SHARE: f64 = 0.99;
/// A note is added if the starts differ from whole seconds by more than this.
const SHIFT_NS: u64 = 50_000_000;

/// Why summaries are not of one run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each variant describes it")]
pub enum MergeError {
    #[error("nothing to merge; name the summaries that --json-out-file wrote")]
    Nothing,
    #[error("{name}: the format is {format:?}, not {FORMAT:?}; merge with the version of waystage that wrote it")]
    Format { name: String, format: String },
    #[error("{name}: cannot be merged: {reason}")]
    Unreadable { name: String, reason: String },
    #[error("{one} and {other} are the same run; name each summary once")]
    Twice { one: String, other: String },
    #[error("{one} and {other} were not measured at the same time: the first ended {gap_s} s before the second began")]
    Apart { one: String, other: String, gap_s: String },
}

/// A summary and its name.
type Named<'a> = (&'a str, &'a Summary);

/// Merges summaries under the names "part 1" and so on. See [`merge_named`].
///
/// # Errors
/// See [`merge_named`].
pub fn merge(summaries: &[Summary]) -> Result<Summary, MergeError> {
    let names: Vec<String> = (1..=summaries.len()).map(|number| format!("part {number}")).collect();
    merge_named(&names.iter().map(String::as_str).zip(summaries).collect::<Vec<_>>())
}

/// Merges named summaries into one summary of all requests.
///
/// The merged summary uses the clock of the part that started first. Its window reaches from the first start to the
/// last end, and rates are over all of it. A second of a part counts for the merged second that contains most of it.
/// The merged run is valid if all parts are.
///
/// # Errors
/// The summaries are not of one run: their formats differ, one occurs twice, their windows do not overlap, or a
/// histogram is damaged.
pub fn merge_named(parts: &[(&str, &Summary)]) -> Result<Summary, MergeError> {
    let first = parts.iter().min_by_key(|(_, part)| part.started_unix_ns).ok_or(MergeError::Nothing)?.1;
    check(parts)?;
    let window = CommonWindow::of(parts)?;
    let (settings, differences) = settings::merged(parts);
    let percentiles = &settings.percentiles;
    let measured_s = window.length_ns() as f64 / 1e9;
    let sum = |which: fn(&Operations) -> &OperationSummary| operation(parts, which);
    let (get, set) = (sum(|operations| &operations.get)?, sum(|operations| &operations.set)?);
    let mut all = get.clone();
    all.merge(&set);
    all.response.record_unanswered(parts.iter().filter_map(|(_, part)| part.totals.unsent).sum());
    let lateness = lateness(parts)?.map(|lateness| Times::new(&lateness, percentiles));
    let totals = totals(parts).rates_of(completed_by_open_loops(parts), measured_s);
    let reasons = named_lines(parts, |part| &part.reasons);
    let mut notes = named_lines(parts, |part| &part.notes);
    notes.extend(differences);
    if settings.r#loop == MIXED {
        notes.push(
            "open and closed loops are merged: the responses of the one count from the schedule, those of the other from the end \
             of thinking; each generator's own summary keeps them apart"
                .into(),
        );
    }
    notes.extend(window.note(parts.len()));
    notes.extend(shift_note(first.started_unix_ns, parts));
    Ok(Summary {
        format: FORMAT.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        arguments: Vec::new(),
        started_unix_ns: first.started_unix_ns,
        started_clock_ns: first.started_clock_ns,
        measure_from_clock_ns: clock_of(first, window.from_unix_ns),
        measure_to_clock_ns: clock_of(first, window.to_unix_ns),
        measured_s,
        partial: parts.iter().any(|(_, part)| part.partial),
        throughput_per_s: per_second(totals.completed, measured_s),
        totals,
        operations: Operations {
            get: OperationSummary::new(&get, percentiles),
            set: OperationSummary::new(&set, percentiles),
            all: OperationSummary::new(&all, percentiles),
            messages: messages(parts)?
                .into_iter()
                .map(|(name, sum)| (name, OperationSummary::new(&sum, percentiles)))
                .collect(),
        },
        lateness,
        seconds: seconds(first.started_unix_ns, parts)?,
        cpu: cpu(parts),
        verification: verification(parts),
        errors: errors(parts),
        valid: parts.iter().all(|(_, part)| part.valid),
        reasons,
        notes,
        parts: parts.iter().flat_map(|part| remembered(*part)).collect(),
        settings,
        coordination: None,
        messages: parts.iter().filter_map(|(_, part)| part.messages.clone()).reduce(|mut sum, other| {
            sum.merge(&other);
            sum
        }),
    })
}

/// The measured time of all parts, in Unix time.
struct CommonWindow {
    from_unix_ns: u64,
    to_unix_ns: u64,
    common_ns: u64,
}

impl CommonWindow {
    fn of(parts: &[Named<'_>]) -> Result<CommonWindow, MergeError> {
        let from = |(_, part): &Named<'_>| unix_of(part, part.measure_from_clock_ns);
        let to = |(_, part): &Named<'_>| unix_of(part, part.measure_to_clock_ns);
        let last_to_begin = parts.iter().max_by_key(|part| from(part)).ok_or(MergeError::Nothing)?;
        let first_to_end = parts.iter().min_by_key(|part| to(part)).ok_or(MergeError::Nothing)?;
        let (common_from, common_to) = (from(last_to_begin), to(first_to_end));
        if common_to <= common_from && parts.len() > 1 {
            return Err(MergeError::Apart {
                one: first_to_end.0.into(),
                other: last_to_begin.0.into(),
                gap_s: format!("{:.3}", (common_from - common_to) as f64 / 1e9),
            });
        }
        Ok(CommonWindow {
            from_unix_ns: parts.iter().map(from).min().unwrap_or(common_from),
            to_unix_ns: parts.iter().map(to).max().unwrap_or(common_to),
            common_ns: common_to.saturating_sub(common_from),
        })
    }

    fn length_ns(&self) -> u64 {
        self.to_unix_ns.saturating_sub(self.from_unix_ns)
    }

    fn note(&self, parts: usize) -> Option<String> {
        let (common_s, whole_s) = (self.common_ns as f64 / 1e9, self.length_ns() as f64 / 1e9);
        (common_s < OVERLAP_SHARE * whole_s).then(|| {
            format!(
                "all {parts} generators were measured together for {common_s:.3} s of {whole_s:.3} s; rates are over all \
                 of it, and so too low for the time in which all ran; start them together and with the same --test-time"
            )
        })
    }
}

/// Converts a time on a part's clock to Unix time, and back.
fn unix_of(part: &Summary, clock_ns: u64) -> u64 {
    part.started_unix_ns + clock_ns.saturating_sub(part.started_clock_ns)
}

fn clock_of(part: &Summary, unix_ns: u64) -> u64 {
    part.started_clock_ns + unix_ns.saturating_sub(part.started_unix_ns)
}

/// Rejects summaries that are not of one run.
fn check(parts: &[Named<'_>]) -> Result<(), MergeError> {
    for (index, (name, part)) in parts.iter().enumerate() {
        if part.format != FORMAT {
            return Err(MergeError::Format { name: (*name).into(), format: part.format.clone() });
        }
        if let Some(what) = implausible(part) {
            let reason = format!("its {what} cannot be those of a run");
            return Err(MergeError::Unreadable { name: (*name).into(), reason });
        }
        let twin = parts[..index].iter().find(|(_, other)| is_same(part, other));
        if let Some((one, _)) = twin {
            return Err(MergeError::Twice { one: (*one).into(), other: (*name).into() });
        }
    }
    Ok(())
}

/// Names a number that no run can have. Such numbers are refused, because a summary may come from another program and
/// the sums of several must not overflow.
fn implausible(part: &Summary) -> Option<&'static str> {
    /// More than nanoseconds since 1970, and more than requests in a run.
    const LARGEST: u64 = 1 << 62;
    const COUNT_MAX: u64 = 1 << 53;
    const SECONDS_MAX: u64 = 1 << 32;
    const CLIENTS_MAX: usize = 1 << 32;
    let (totals, settings) = (&part.totals, &part.settings);
    let times = [part.started_unix_ns, part.started_clock_ns, part.measure_from_clock_ns, part.measure_to_clock_ns];
    let counts = [totals.requests, totals.completed, totals.keys, totals.hits, totals.misses, totals.errors];
    let more = [totals.requests_sent, totals.requests_answered, totals.sent_bytes, totals.received_bytes];
    let open = [totals.intended, totals.unsent, settings.requests].map(Option::unwrap_or_default);
    let verified = part.verification;
    let checks = [verified.checked, verified.wrong, verified.torn, verified.stale, verified.unjudged];
    let others = [verified.unexpected_reply, verified.keys_uncertain, settings.key_minimum, settings.key_maximum];
    let operations = &part.operations;
    let all = [&operations.get, &operations.set, &operations.all].into_iter().chain(operations.messages.values());
    let of_operations = all.flat_map(|one| {
        let counts = [one.count, one.hits, one.misses, one.errors, one.response.unanswered, one.service.unanswered];
        counts.into_iter().chain([one.sent_bytes, one.received_bytes])
    });
    let of_seconds = part.seconds.iter().flat_map(|second| {
        let counts = [second.requests, second.errors, second.hits, second.misses, second.intended.unwrap_or(0)];
        counts.into_iter().chain([second.sent_bytes, second.received_bytes])
    });
    let errors = part.errors.values().copied();
    let mut counts = counts
        .into_iter()
        .chain(more)
        .chain(open)
        .chain(checks)
        .chain(others)
        .chain(errors)
        .chain(of_operations)
        .chain(of_seconds);
    [
        (times.into_iter().any(|time| time > LARGEST), "times"),
        (counts.any(|count| count > COUNT_MAX), "counts"),
        (part.seconds.iter().any(|second| second.second > SECONDS_MAX), "seconds"),
        (settings.clients > CLIENTS_MAX || settings.threads > CLIENTS_MAX, "clients"),
    ]
    .into_iter()
    .find_map(|(is_wrong, what)| is_wrong.then_some(what))
}

/// Whether two summaries are of the same generator: two processes do not start in the same nanosecond with the same
/// seed.
fn is_same(one: &Summary, other: &Summary) -> bool {
    let identity = |part: &Summary| (part.started_unix_ns, part.started_clock_ns, part.settings.seed);
    identity(one) == identity(other) && one.operations == other.operations
}

/// One operation of all parts.
fn operation(parts: &[Named<'_>], which: fn(&Operations) -> &OperationSummary) -> Result<OperationTally, MergeError> {
    added(parts.iter().map(|(name, part)| (*name, which(&part.operations))))
}

/// Each operation of a message service, by its name.
fn messages(parts: &[Named<'_>]) -> Result<BTreeMap<String, OperationTally>, MergeError> {
    let names: BTreeSet<&String> = parts.iter().flat_map(|(_, part)| part.operations.messages.keys()).collect();
    let of = |operation: &String| {
        added(parts.iter().filter_map(|(name, part)| Some((*name, part.operations.messages.get(operation)?))))
    };
    names.into_iter().map(|name| Ok((name.clone(), of(name)?))).collect()
}

/// The sum of one operation over several generators.
fn added<'a>(shown: impl Iterator<Item = (&'a str, &'a OperationSummary)>) -> Result<OperationTally, MergeError> {
    let mut sum = OperationTally::new();
    for (name, shown) in shown {
        let unreadable = |reason| MergeError::Unreadable { name: name.into(), reason };
        let tally = OperationTally {
            hits: shown.hits,
            misses: shown.misses,
            errors: shown.errors,
            sent_bytes: shown.sent_bytes,
            received_bytes: shown.received_bytes,
            response: shown.response.to_histogram().map_err(unreadable)?,
            service: shown.service.to_histogram().map_err(unreadable)?,
            slip: shown.slip.to_histogram().map_err(unreadable)?,
        };
        if tally.count() != shown.count {
            let reason = format!("{} requests are counted, and {} are in their histogram", shown.count, tally.count());
            return Err(unreadable(reason));
        }
        sum.merge(&tally);
    }
    Ok(sum)
}

/// The lateness of all generators; none if all loops are closed.
fn lateness(parts: &[Named<'_>]) -> Result<Option<TimeHistogram>, MergeError> {
    let mut sum: Option<TimeHistogram> = None;
    for (name, part) in parts {
        if let Some(times) = &part.lateness {
            let read = times.to_histogram();
            let read = read.map_err(|reason| MergeError::Unreadable { name: (*name).into(), reason })?;
            sum.get_or_insert_with(TimeHistogram::new).merge(&read);
        }
    }
    Ok(sum)
}

fn totals(parts: &[Named<'_>]) -> Totals {
    let sum = |field: fn(&Totals) -> u64| parts.iter().map(|(_, part)| field(&part.totals)).sum();
    let known = |field: fn(&Totals) -> Option<u64>| {
        parts.iter().map(|(_, part)| field(&part.totals)).reduce(sum_of_known).flatten()
    };
    Totals {
        requests: sum(|totals| totals.requests),
        completed: sum(|totals| totals.completed),
        keys: sum(|totals| totals.keys),
        hits: sum(|totals| totals.hits),
        misses: sum(|totals| totals.misses),
        errors: sum(|totals| totals.errors),
        sent_bytes: sum(|totals| totals.sent_bytes),
        received_bytes: sum(|totals| totals.received_bytes),
        requests_sent: sum(|totals| totals.requests_sent),
        requests_answered: sum(|totals| totals.requests_answered),
        intended: known(|totals| totals.intended),
        unsent: known(|totals| totals.unsent),
        offered_per_s: None,
        achieved_share: None,
    }
}

/// Requests that open loops completed, which are the only ones that an offered rate can be compared with.
fn completed_by_open_loops(parts: &[Named<'_>]) -> u64 {
    let completed = |part: &Summary| match (part.totals.intended, part.totals.achieved_share) {
        // A merged part may contain closed loops itself.
        (Some(intended), Some(share)) if part.settings.r#loop == MIXED => (share * intended as f64).round() as u64,
        (Some(_), _) => part.totals.completed,
        (None, _) => 0,
    };
    parts.iter().map(|(_, part)| completed(part)).sum()
}

/// All seconds by their Unix time, counted from `start_unix_ns`.
fn seconds(start_unix_ns: u64, parts: &[Named<'_>]) -> Result<Vec<Second>, MergeError> {
    let mut merged: BTreeMap<u64, (Second, usize)> = BTreeMap::new();
    for (name, part) in parts {
        let (offset, _) = shift(start_unix_ns, part);
        for second in &part.seconds {
            let mut second = second.clone();
            second.second += offset;
            let Some((sum, of)) = merged.get_mut(&second.second) else {
                merged.insert(second.second, (second, 1));
                continue;
            };
            sum.merge(&second).map_err(|reason| MergeError::Unreadable { name: (*name).into(), reason })?;
            *of += 1;
        }
    }
    // A merged second is measured only if it lies within the window of every part.
    Ok(merged.into_values().map(|(sum, of)| Second { measured: sum.measured && of == parts.len(), ..sum }).collect())
}

/// The number of seconds by which a part is shifted, and the error of that number.
fn shift(start_unix_ns: u64, part: &Summary) -> (u64, u64) {
    let apart_ns = part.started_unix_ns.saturating_sub(start_unix_ns);
    let seconds = (apart_ns + 500_000_000) / 1_000_000_000;
    (seconds, apart_ns.abs_diff(seconds * 1_000_000_000))
}

fn shift_note(start_unix_ns: u64, parts: &[Named<'_>]) -> Option<String> {
    let largest_ns = parts.iter().map(|(_, part)| shift(start_unix_ns, part).1).max().unwrap_or(0);
    (largest_ns > SHIFT_NS).then(|| {
        format!(
            "the starts differ from whole seconds by up to {:.3} s, and so do the counts in `seconds`; nothing else is affected",
            largest_ns as f64 / 1e9
        )
    })
}

fn cpu(parts: &[Named<'_>]) -> Cpu {
    let user_s = parts.iter().map(|(_, part)| part.cpu.user_s).sum();
    let system_s = parts.iter().map(|(_, part)| part.cpu.system_s).sum();
    let polled_s = parts.iter().map(|(_, part)| part.cpu.polled_s).sum();
    let thread_seconds = parts.iter().map(|(_, part)| part.measured_s * part.settings.threads as f64).sum();
    Cpu { user_s, system_s, polled_s, share: 0.0 }.of(thread_seconds)
}

fn verification(parts: &[Named<'_>]) -> Verification {
    parts.iter().fold(Verification::default(), |sum, (_, part)| {
        let other = part.verification;
        Verification {
            checked: sum.checked + other.checked,
            wrong: sum.wrong + other.wrong,
            torn: sum.torn + other.torn,
            stale: sum.stale + other.stale,
            unjudged: sum.unjudged + other.unjudged,
            unexpected_reply: sum.unexpected_reply + other.unexpected_reply,
            keys_uncertain: sum.keys_uncertain + other.keys_uncertain,
        }
    })
}

fn errors(parts: &[Named<'_>]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (line, count) in parts.iter().flat_map(|(_, part)| &part.errors) {
        count_error(&mut sum, line, *count);
    }
    sum
}

/// The lines of all parts, each with the name of its part.
fn named_lines(parts: &[Named<'_>], lines: fn(&Summary) -> &Vec<String>) -> Vec<String> {
    let of_part =
        |(name, part): &Named<'_>| lines(part).iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>();
    parts.iter().flat_map(of_part).collect()
}

/// The entry for a part. A part that was merged itself contributes its own parts.
fn remembered((name, part): Named<'_>) -> Vec<MergedPart> {
    if !part.parts.is_empty() {
        return part.parts.clone();
    }
    vec![MergedPart {
        name: name.into(),
        version: part.version.clone(),
        arguments: part.arguments.clone(),
        settings: part.settings.clone(),
        started_unix_ns: part.started_unix_ns,
        measured_s: part.measured_s,
        requests: part.totals.requests,
        throughput_per_s: part.throughput_per_s,
        response_mean_ns: part.operations.all.response.mean_ns,
        cpu: part.cpu,
        valid: part.valid,
    }]
}

#[cfg(test)]
mod tests;
