"""The evidence for and against the data, in lines of plain text: gates, null arms, controls and steady state.

The page, the terminal and samples show the same lines.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from waylab.report.page.content import Content
from waylab.report.page.laws import law_words
from waylab.report.page.numbers import percent_text, signed_percent_text
from waylab.runfolder.gate_words import gate_limit, gate_value, gate_words, limit_gate
from waylab.runfolder.trial_numbers import Gate

_GATES_MAX = 4
_TRIALS_MAX = 3


@dataclass(frozen=True)
class Reliance:
    """One line with its kind: `good`, `note` or `bad`."""

    kind: str
    text: str

    @property
    def mark(self) -> str:
        """A sign that is readable without colours."""
        return {"good": "✓", "note": "!", "bad": "✗"}[self.kind]


def reliance(content: Content) -> list[Reliance]:
    """Return the lines for and against the data."""
    about_gates = [*_gates(content), *_unjudged(content), *_loosened(content)]
    return [*about_gates, *_arms(content), *_laws(content), *_size(content)]


def _gates(content: Content) -> list[Reliance]:
    analysis = content.analysis
    used, total = analysis.trials_used, analysis.trials_total
    words = f"{used} of {total} trials {content.spec.gates.passed.partition(',')[0]}"
    words += ". A gate is a check that a trial must pass to be used."
    failed = [Reliance("bad", text) for text in failures(content)]
    return [Reliance("good" if used == total else "bad", words), *failed]


def _unjudged(content: Content) -> list[Reliance]:
    """List the gates that imported results do not allow to judge, each with the reason."""
    found = {
        gate_words(gate.name): gate.text.removeprefix("cannot be judged: ")
        for trial in content.analysis.trials
        for gate in trial.gates
        if gate.unjudged
    }
    listed = "; ".join(f"{words} ({why})" for words, why in found.items())
    return [Reliance("note", f"Cannot be judged, neither passed nor failed: {listed}.")] if found else []


def failures(content: Content) -> list[str]:
    """Say in one line for each gate which trials failed it; the gates that most trials failed come first."""
    analysis = content.analysis
    failed: dict[str, list[str]] = {}
    for trial in analysis.trials:
        label = content.label(trial.configuration)
        named = f"block {trial.block} with {label}" if trial.levels else trial.id
        for gate in trial.gates:
            if gate.passed is False:
                failed.setdefault(gate_words(gate.name), []).append(f"{named} ({_why(gate)})")
        if not trial.gates and not trial.used:
            failed.setdefault("no readable result" if trial.run else "not run", []).append(named)
    ranked = sorted(failed.items(), key=lambda pair: -len(pair[1]))
    return [_failure(words, trials, analysis.trials_total) for words, trials in ranked[:_GATES_MAX]]


def _failure(words: str, trials: Sequence[str], total: int) -> str:
    """Name the trials that failed a gate, each with the reason; beyond a limit, give only their number."""
    if len(trials) == total > 1:
        return f"All {total} trials failed \u201c{words}\u201d, for example {trials[0]}."
    count = f"{len(trials)} {'trial' if len(trials) == 1 else 'trials'}"
    listed = "; ".join(trials[:_TRIALS_MAX])
    more = len(trials) - _TRIALS_MAX
    listed += f"; and {more} more, listed under \u201cCan I trust it?\u201d" if more > 0 else ""
    return f"{count} failed \u201c{words}\u201d: {listed}."


def _why(gate: Gate) -> str:
    """Return value and limit of a gate that failed; its own words if it has no number."""
    if gate.value is None or gate.limit is None:
        return gate.text
    return f"{gate_value(gate.name, gate.value)}, required {gate_limit(gate.name, gate.limit)}"


def _loosened(content: Content) -> list[Reliance]:
    """List every limit that is looser than its default, with the worst measured value."""
    gates = content.spec.gates
    parts = []
    for name in gates.loosened:
        stem = limit_gate(name)
        limit = getattr(gates, name)
        found = [
            gate.value
            for trial in content.analysis.trials
            if trial.used
            for gate in trial.gates
            if gate.name == stem and gate.value is not None
        ]
        if isinstance(limit, bool):
            parts.append(f"{gate_words(stem)} switched off")
            continue
        text = f"{gate_words(stem)}, limit {_limit(stem, limit)}"
        if name in gates.usual:
            text += f" instead of the usual {_limit(stem, gates.usual[name])}"
        if found:
            worst = min(found) if name.endswith("_min") else max(found, key=abs)
            text += f" (worst measured {gate_value(stem, worst)})"
        parts.append(text)
    return [Reliance("note", f"Loosened limits: {'; '.join(parts)}. {gates.reason}")] if parts else []


def _limit(gate: str, limit: float) -> str:
    return gate_value(gate, limit).lstrip("+")


def _arms(content: Content) -> list[Reliance]:
    """Report the null arms and positive controls, which test the instrument."""
    lines = []
    for c in content.analysis.comparisons:
        if c.null is not None:
            kind = {True: "bad", False: "good", None: "note"}[c.null.flagged]
            lines.append(Reliance(kind, f"Null arm: {c.null.text}."))
        if c.control is not None:
            kind = {True: "good", False: "bad", None: "note"}[c.control.found]
            lines.append(Reliance(kind, f"Positive control: {c.control.text}."))
    return lines


def _laws(content: Content) -> list[Reliance]:
    """Report the operational laws that do not hold in some trial, with the one that is furthest beyond its limit."""
    checks = [(law, c.name) for c in content.configurations for law in c.laws]
    broken = [(law, name) for law, name in checks if law.broken and law.residual is not None]
    if not broken:
        return []
    law, name = max(broken, key=lambda pair: abs(pair[0].residual or 0.0) / pair[0].limit)
    count, total = sum(law.broken for law, _ in broken), sum(law.trials for law, _ in checks)
    return [
        Reliance(
            "note",
            f"{count} of {total} checks of operational laws failed. In the worst case, with "
            f"{content.label(name)}, {law_words(law.name)} is off by {signed_percent_text(law.residual)}, "
            f"limit {percent_text(law.limit)}.",
        )
    ]


def _size(content: Content) -> list[Reliance]:
    lines = []
    if content.run.quick:
        lines.append(
            Reliance(
                "note",
                "Quick scale: fewer blocks, shorter trials or fewer levels than the specification has.",
            )
        )
    if not content.analysis.complete:
        lines.append(Reliance("bad", "The run is not finished: some trials of the plan have not been run."))
    stopping = content.analysis.stopping
    if stopping:
        lines.append(Reliance("good", f"Stopped after {stopping.block} blocks: {stopping.reason}"))
    blocks = {trial.block for trial in content.analysis.trials if trial.used}
    steady = content.analysis.steady_state
    if blocks:
        words = "1 block" if len(blocks) == 1 else f"{len(blocks)} blocks"
        if content.spec.gates.imported:
            text = f"A configuration has at most {words}: each of its imported results is one block. {steady.text}"
        else:
            text = f"Every mean is over {words}; a block runs every configuration once. {steady.text}"
        lines.append(
            Reliance("note" if len(blocks) < 2 or steady.judged == 0 or steady.unsteady else "good", text)
        )
    return lines
