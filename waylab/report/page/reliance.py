"""The evidence for and against the data, in lines of plain text: gates, null arms, controls and steady state.

The page, the terminal and samples show the same lines.
"""

from collections import Counter
from dataclasses import dataclass

from waylab.report.page.content import Content
from waylab.report.page.gates import gate_value, gate_words

_GATES_MAX = 4


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
    return [*_gates(content), *_loosened(content), *_arms(content), *_size(content)]


def _gates(content: Content) -> list[Reliance]:
    analysis = content.analysis
    used, total = analysis.trials_used, analysis.trials_total
    words = f"{used} of {total} trials {content.spec.gates.passed.partition(',')[0]}"
    lines = [Reliance("good" if used == total else "bad", words + ".")]
    failed: Counter[str] = Counter()
    for trial in analysis.trials:
        failed.update(gate.name for gate in trial.gates if gate.passed is False)
        if not trial.gates and not trial.used:
            failed["not run" if not trial.run else "no readable result"] += 1
    lines += [
        Reliance("bad", f"{count} {'trial' if count == 1 else 'trials'} failed: {gate_words(name)}.")
        for name, count in failed.most_common(_GATES_MAX)
    ]
    return lines


def _loosened(content: Content) -> list[Reliance]:
    """List every limit that is looser than its default, with the worst measured value."""
    gates = content.spec.gates
    parts = []
    for name in gates.loosened:
        stem = name.removesuffix("_max").removesuffix("_min")
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
        text = f"{gate_words(stem)}, limit {gate_value(stem, limit).lstrip('+')}"
        if found:
            worst = min(found) if name.endswith("_min") else max(found, key=abs)
            text += f" (measured at worst {gate_value(stem, worst)})"
        parts.append(text)
    return [Reliance("note", f"Loosened: {'; '.join(parts)}. {gates.reason}")] if parts else []


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
        text = f"Every mean rests on {len(blocks)} {'block' if len(blocks) == 1 else 'blocks'}. {steady.text}"
        lines.append(
            Reliance("note" if len(blocks) < 2 or steady.judged == 0 or steady.unsteady else "good", text)
        )
    return lines
