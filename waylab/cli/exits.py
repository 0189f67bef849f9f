"""Exit codes of the verdict on two versions, for CI: `waylab ab` and `waylab compare`."""

from waylab.analysis.across.contrasts.verdicts import NO_WORSE, UNDECIDED, WORSE
from waylab.analysis.across.contrasts.versions import NOT_REPLICATED

# 2 is bad input, as everywhere.
_EXITS = {NO_WORSE: 0, WORSE: 1, UNDECIDED: 3, NOT_REPLICATED: 4}


def verdict_exit(verdict: str) -> int:
    """Return the exit code of a verdict."""
    return _EXITS[verdict]
