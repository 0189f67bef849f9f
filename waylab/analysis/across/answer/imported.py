"""What the reader of imported results must know first: whose they are, and which gates cannot be judged."""

from collections.abc import Sequence

from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.gate_words import gate_name
from waylab.runfolder.words import joined

_NAMED_MAX = 4


def imported_results(trials: Sequence[TrialResult]) -> list[str]:
    """Return the lines that precede the answer of imported results; nothing for results of our own."""
    sources = [one.numbers.source for one in trials if one.content.numbers and one.numbers.source]
    if not sources:
        return []
    tools = joined(dict.fromkeys(source.tool for source in sources))
    gates = [gate for one in trials for gate in one.content.gates]
    names = list(dict.fromkeys(gate.name for gate in gates if gate.unjudged))
    applied = {gate.name for gate in gates if gate.unjudged or gate.passed is not None}
    words = [gate_name(name) for name in names]
    more = [f"{len(words) - _NAMED_MAX} more"] if len(words) > _NAMED_MAX + 1 else []
    listed = joined([*words[: _NAMED_MAX if more else None], *more]) if words else ""
    meanings = dict.fromkeys(f"{source.tool}: {source.latency}" for source in sources)
    return [
        f"Imported from {tools}: {len(names)} of {len(applied)} gates cannot be judged ({listed}). "
        "They have neither passed nor failed.",
        *meanings,
    ]
