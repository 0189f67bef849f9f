"""Connects run and analysis, which may not import each other: judges trials, and applies the stopping rule."""

from pathlib import Path

from msgspec.structs import replace

from waylab.analysis import analyse_trial
from waylab.analysis.across.precision import gating_values
from waylab.analysis.statistics.stopping import Decision, StoppingRule, decide
from waylab.analysis.trial.gates import OF_THE_MACHINE, failed_reasons
from waylab.errors import LabError
from waylab.runfolder.files import read_run
from waylab.runfolder.stopping import BlockDecision
from waylab.runfolder.trial_numbers import AnalysedTrial
from waylab.spec import StoppingSettings


def rule_of(stopping: StoppingSettings) -> StoppingRule:
    """Return the rule of the statistics with the settings of a specification."""
    return StoppingRule(
        precision=stopping.precision,
        blocks_min=stopping.blocks_min,
        blocks_max=stopping.blocks_max,
        budget_s=stopping.budget_s or None,
    )


def least_blocks(stopping: StoppingSettings) -> int:
    """Return the smallest number of blocks that can meet the rule."""
    return min(stopping.blocks_min + rule_of(stopping).confirmations, stopping.blocks_max)


def disturbances(trial: AnalysedTrial) -> list[str]:
    """Return the gates that a trial failed because of the machine, a line each."""
    return failed_reasons([gate for gate in trial.gates if gate.name in OF_THE_MACHINE])


class TrialJudge:
    """Judges the trials of a run folder, each once, and applies the stopping rule to them."""

    def __init__(self, directory: Path, stopping: StoppingSettings) -> None:
        self._directory = directory
        self._stopping = stopping
        self._trials: dict[str, AnalysedTrial] = {}

    def trial(self, trial_id: str, anew: bool = False) -> AnalysedTrial:
        """Return the analysis of a trial."""
        if anew or trial_id not in self._trials:
            self._trials[trial_id] = analyse_trial(self._directory, trial_id).content
        return self._trials[trial_id]

    def disturbed(self, trial_id: str) -> list[str]:
        """Return why other programs spoiled a measured trial, a line for each gate."""
        return disturbances(self.trial(trial_id))

    def decide(self, block: int, elapsed_s: float) -> BlockDecision:
        """Decide after a block whether another one runs; `elapsed_s` is the duration of the trials so far."""
        plan = read_run(self._directory).plan
        trials = [self.trial(planned.id) for planned in plan if planned.block <= block]
        values, left_out = gating_values(trials, list(self._stopping.metrics))
        rule = rule_of(self._stopping)
        try:
            found = decide(values, rule, elapsed_s, elapsed_s / block)
        except LabError:
            found = Decision(False, "continue", "no trial could be used yet", 0, {}, None)
        decision = BlockDecision(**vars(found), block=block, elapsed_s=elapsed_s, left_out=left_out)
        if not decision.stop and rule.budget_s and elapsed_s * (block + 1) / block > rule.budget_s:
            # Incomplete blocks do not count as blocks, but they do take time.
            reason = f"the budget is spent; {decision.reason}"
            decision = replace(decision, stop=True, kind="budget", reason=reason)
        if not decision.stop and block >= self._stopping.blocks_max:
            reason = (
                f"{block} blocks are the maximum, of which {decision.blocks} were whole; {decision.reason}"
            )
            decision = replace(decision, stop=True, kind="maximum", reason=reason)
        return decision
