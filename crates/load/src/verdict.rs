//! Whether a run is to be believed: what spoils it, and what is worth knowing about it, one line each with what to do.
//! Judges what the summary says and nothing else; docs/load-summary.md gives the reasons for the thresholds.

use crate::summary::Summary;

/// Everything that spoils the run. `broken` is what went wrong with the servers.
pub(crate) fn reasons(summary: &Summary, broken: Option<&str>) -> Vec<String> {
    let mut reasons = verification(summary);
    reasons.extend(broken.map(str::to_owned));
    if summary.totals.requests == 0 {
        reasons.push("nothing was measured: no request was answered within the window other than by an error".into());
    }
    reasons
}

/// What does not spoil the run, but may surprise.
pub(crate) fn notes(_summary: &Summary) -> Vec<String> {
    Vec::new()
}

/// Values that are not what was set, and replies that are none.
fn verification(summary: &Summary) -> Vec<String> {
    let verified = summary.verification;
    let found = [
        (verified.wrong, "belong to another key"),
        (verified.torn, "are torn (not as any one set wrote them)"),
        (verified.stale, "are stale (older than the last acknowledged set, or not of this run)"),
    ];
    let found = found.into_iter().filter(|(values, _)| *values > 0);
    let mut reasons: Vec<String> =
        found.map(|(values, what)| format!("{values} of {} values {what}", verified.checked)).collect();
    if verified.unexpected_reply > 0 {
        reasons.push(format!("{} replies were not replies to what was asked", verified.unexpected_reply));
    }
    reasons
}
