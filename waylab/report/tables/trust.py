"""Tables of the section `checks`: gates, laws, steady state and residuals. They say which trials can be trusted."""

from collections.abc import Mapping
from html import escape

from waylab.report.page.content import Content
from waylab.report.page.laws import law_words
from waylab.report.page.numbers import (
    NONE,
    interval,
    interval_text,
    percent_text,
    rate_text,
    shown,
    signed_percent_text,
    time_text,
)
from waylab.report.tables.table import table
from waylab.runfolder.gate_words import (
    gate_limit,
    gate_value,
    gate_words,
    is_lower_limit,
    limit_gate,
    reasons_words,
)
from waylab.runfolder.numbers import WorstLaw
from waylab.runfolder.run import GateLimits
from waylab.runfolder.trial_numbers import Gate, WithinPercentile, WithinTrial

_PERCENTS = ("50", "95", "99", "99.9")


def gates_table(content: Content) -> str:
    """Every gate of every trial."""
    applied = (
        gate
        for trial in content.analysis.trials
        for gate in trial.gates
        if gate.passed is not None or gate.unjudged
    )
    names = list(dict.fromkeys(gate.name for gate in applied))
    rows = []
    for trial in content.analysis.trials:
        gates = {gate.name: gate for gate in trial.gates}
        mark = '<span class="pass">used</span>' if trial.used else '<span class="fail">NOT USED</span>'
        rows.append([f"{escape(trial.id)}", mark, *(_gate(gates.get(name)) for name in names)])
    return table(
        ["trial", "verdict", *(gate_words(name) for name in names)],
        rows,
        "Every gate of every trial; – does not apply, ? cannot be judged. Hold the pointer over a cell for its words.",
        "gates",
    )


def gate_limits_table(content: Content) -> str:
    """Every gate in words, with its limit, how many trials passed it, and the value that was furthest off."""
    gates: dict[str, list[Gate]] = {}
    for trial in content.analysis.trials:
        for gate in trial.gates:
            if gate.passed is not None or gate.unjudged:
                gates.setdefault(gate.name, []).append(gate)
    gates_of = content.spec.gates
    loosened = {limit_gate(name): name for name in gates_of.loosened}
    rows = []
    for name, found in gates.items():
        failed = sum(gate.passed is False for gate in found)
        unjudged = sum(gate.unjudged for gate in found)
        mark = '<span class="pass">✓</span>' if not failed else f'<span class="fail">✗ {failed} failed</span>'
        if unjudged:
            passed = f"{mark} " if unjudged < len(found) else ""
            mark = f"{passed}? {unjudged} cannot be judged, of"
        worst = _furthest(found)
        rows.append(
            [
                escape(gate_words(name)),
                escape(gate_limit(name, found[0].limit)) + _loosened(name, loosened, gates_of),
                shown(worst, lambda value, name=name: gate_value(name, value)),  # type: ignore[misc]
                f"{mark} {shown(len(found))} trials",
            ]
        )
    return table(
        ["gate", "limit", "measured, furthest off", "passed"],
        rows,
        "What a trial must meet so that its numbers are used. Gates that do not apply to this load are left out.",
    )


def _loosened(gate: str, loosened: Mapping[str, str], limits: GateLimits) -> str:
    """Mark a loosened limit, with the usual one beside it."""
    if gate not in loosened:
        return ""
    usual = limits.usual.get(loosened[gate])
    return " <b>loosened</b>" + (f", usually {escape(gate_limit(gate, usual))}" if usual is not None else "")


def _furthest(gates: list[Gate]) -> float | None:
    """Return the value that is closest to its limit or furthest beyond it."""
    known = [gate.value for gate in gates if gate.value is not None]
    limit = gates[0].limit
    if not known or limit is None:
        return None
    lower = is_lower_limit(gates[0].name)
    return min(known) if lower else max(known, key=abs)


def failed_trials(content: Content) -> str:
    """The trials that are not used, with the reasons."""
    failed = [trial for trial in content.analysis.trials if not trial.used]
    again = _measured_again(content)
    if not failed:
        return f'<p class="good">Every trial {escape(content.spec.gates.passed)}.</p>{again}'
    items = "".join(f"<li><b>{escape(t.id)}</b>: {escape(reasons_words(t.reasons))}</li>" for t in failed)
    return f'<div class="bad"><p><b>These trials are not used in any aggregate:</b></p><ul>{items}</ul></div>{again}'


def _measured_again(content: Content) -> str:
    """The trials that other programs disturbed at first, and that ran again at the end of their block."""
    again = [trial for trial in content.analysis.trials if trial.refused]
    if not again:
        return ""
    items = "".join(
        f"<li><b>{escape(t.id)}</b>: {escape('; then '.join(reasons_words([one]) for one in t.refused))}</li>"
        for t in again
    )
    return (
        f"<details><summary>Measured again, because other programs disturbed the machine: {len(again)}"
        f"</summary><ul>{items}</ul></details>"
    )


def conditions_table(content: Content) -> str:
    """The interactive law, and whether the keys were found."""
    pipeline = any(c.load.pipeline != 1 for c in content.configurations)
    thinks = any(c.load.think_time != "none" for c in content.configurations)
    rows = [
        [
            escape(content.label(c.name)),
            shown(c.load.clients),
            *([shown(c.load.pipeline)] if pipeline else []),
            *([escape(c.load.think_time)] if thinks else []),
            *([] if content.open_loop else [interval(c.interactive_law_error, signed_percent_text)]),
            interval(c.hit_ratio, percent_text),
            interval(c.generator_cpu_share, percent_text),
            interval(c.busy_share, percent_text),
        ]
        for c in content.configurations
    ]
    headings = [
        "configuration",
        "clients",
        *(["pipeline"] if pipeline else []),
        *(["think time"] if thinks else []),
        *([] if content.open_loop else ["X(R+Z)/N - 1"]),
        "hit ratio",
        "load's share of a core",
        "machine busy",
    ]
    return table(
        headings,
        rows,
        "Laws and conditions, means over trials with 95 % intervals. N is clients times pipeline.",
    )


def laws_table(content: Content) -> str:
    """The laws of every configuration, in the trial that is furthest off."""
    rows = [
        [
            escape(content.label(c.name)),
            escape(law_words(law.name)),
            shown(law.expected, _plain),
            shown(law.found, _plain),
            shown(law.residual, signed_percent_text),
            shown(law.limit, percent_text),
            _holds(law),
        ]
        for c in content.configurations
        for law in c.laws
    ]
    headings = ["configuration", "law", "expected", "found", "off by", "limit", "holds"]
    return table(
        headings,
        rows,
        "Operational laws between numbers that were measured independently, in the trial that is furthest off. "
        "N: requests in flight, X: throughput, R: response time, Z: think time.",
    )


def within_table(content: Content) -> str:
    """Warm-up, effective sample sizes and intervals of every trial that was used."""
    rows, reasons = [], set()
    for trial in content.analysis.trials:
        within = trial.numbers.within if trial.used and trial.numbers else None
        if within is None or within.warm_up is None or within.throughput_per_s is None:
            continue
        throughput, percentiles = within.throughput_per_s, within.percentiles_ns
        reasons.add((within.warm_up.text, _why_not(within)))
        rows.append(
            [
                escape(trial.id),
                shown(within.seconds),
                escape(within.warm_up.text),
                shown(throughput.effective, rate_text),
                interval(throughput, rate_text),
                interval(within.response_mean_ns, time_text),
                *(_percentile(percentiles.get(percent)) for percent in _PERCENTS),
                escape(_why_not(within)),
            ]
        )
    if len(reasons) == 1 and all(reasons.copy().pop()):
        # A table in which every trial has the same reason and no interval answers no question.
        warm_up, why = reasons.pop()
        words = f"No trial has an interval of its own. Warm-up: {warm_up}. Interval: {why}."
        return f'<p class="note">{escape(words)}</p>'
    headings = [
        "trial",
        "seconds",
        "warm-up",
        "effective seconds",
        "throughput, 1/s",
        "mean response",
        *(f"p{percent}" for percent in _PERCENTS),
        "why no interval",
    ]
    note = (
        "All values exclude the warm-up. The 95 % intervals allow for the correlation between seconds, and show how "
        "well one run is known. The variation from run to run is in the intervals across trials."
    )
    return table(headings, rows, note)


def residual_checks(content: Content) -> str:
    """What the tests of the residuals say of every metric."""
    metrics = content.analysis.factorial.metrics
    rows = [
        [escape(metric.title), escape(check.name), _mark(check.kept), escape(check.text)]
        for metric in metrics
        for check in metric.checks
    ]
    if not rows:
        return ""
    words = (
        "Assumptions behind the intervals of the effects. A test that fails says that the model is wrong; "
        "one that does not, with few trials, says little."
    )
    return f"<h3>Residuals</h3>{table(['metric', 'check', 'holds', 'what was found'], rows, words)}"


def _gate(gate: Gate | None) -> str:
    if gate is None or gate.passed is None:
        mark = "?" if gate and gate.unjudged else NONE
        return f'<span title="{escape(gate.text) if gate else ""}">{mark}</span>'
    kind, mark = ("pass", "✓") if gate.passed else ("fail", "✗")
    value = (
        f" {shown(gate.value, lambda number: gate_value(gate.name, number))}"
        if gate.value is not None
        else ""
    )
    return f'<span class="{kind}" title="{escape(gate.text)}">{mark}{value}</span>'


def _percentile(found: WithinPercentile | None) -> str:
    return NONE if found is None else interval_text(found.value, found.low, found.high, time_text)


def _why_not(within: WithinTrial) -> str:
    """Why the throughput or else the first percentile without an interval has none."""
    if within.throughput_per_s and within.throughput_per_s.text:
        return within.throughput_per_s.text
    for percent, found in within.percentiles_ns.items():
        if found.text:
            return f"p{percent}: {found.text}"
    return ""


def _holds(law: WorstLaw) -> str:
    title = escape(law.text)
    if law.holds is None:
        return f'<span title="{title}">{NONE}</span>'
    if not law.broken:
        return f'<span class="pass" title="{title}">✓</span>'
    return f'<span class="fail" title="{title}">✗ in {shown(law.broken)} of {shown(law.trials)}</span>'


def _plain(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _mark(kept: bool | None) -> str:
    return NONE if kept is None else '<span class="pass">✓</span>' if kept else '<span class="fail">✗</span>'
