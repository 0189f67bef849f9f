"""Trials in which the system under test failed. Without them, the metrics of a version that fails look too good.

A version that crashes under load loses its worst trials, and the remaining ones show no loss of performance.
"""

from collections.abc import Sequence

from waylab.runfolder.trial_numbers import AnalysedTrial

# Gates that judge the system. The others judge the machine, the load generator and the files.
FAULT_GATES = ("complete", "errors", "verification", "hit_ratio", "achieved_offered")


def lost(trials: Sequence[AnalysedTrial]) -> list[AnalysedTrial]:
    """Return the trials that were run and failed a gate that judges the system."""
    return [trial for trial in trials if trial.run and _fault(trial)]


def why_not_no_worse(baseline: Sequence[AnalysedTrial], candidate: Sequence[AnalysedTrial]) -> str:
    """Return why the candidate cannot be called "no worse", whatever its remaining trials show; empty if it can.

    It must have a used trial of every configuration that the baseline has, and must not lose a larger share of its
    trials. Configurations are compared by their `configuration`, so both sides must use the same names.
    """
    have = [{trial.configuration for trial in side if trial.used} for side in (baseline, candidate)]
    missing = sorted(have[0] - have[1])
    before, after = lost(baseline), lost(candidate)
    run = [sum(trial.run for trial in side) for side in (baseline, candidate)]
    if len(after) * run[0] > len(before) * run[1]:
        return (
            f"the candidate failed in {len(after)} of {run[1]} trials, the baseline in {len(before)} of {run[0]}; "
            f"the first: {_fault(after[0])}"
        )
    if missing:
        return f"no trial of the candidate was used for {missing[0] or 'its only configuration'}"
    return ""


def _fault(trial: AnalysedTrial) -> str:
    """Return the first gate of `FAULT_GATES` that failed, in words; empty without one."""
    failed = (gate for gate in trial.gates if gate.name in FAULT_GATES and gate.passed is False)
    return next((f"{gate.name}: {gate.text}" for gate in failed), "")
