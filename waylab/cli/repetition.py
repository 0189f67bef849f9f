"""Joins run and analysis where they may not know each other: judges trials as they end, and decides when to stop."""

from pathlib import Path
from typing import Any

from waylab.analysis import analyse_trial
from waylab.analysis.precision import gating_values
from waylab.analysis.statistics.stopping import StoppingRule, decide
from waylab.errors import LabError
from waylab.runfolder.files import read_run
from waylab.spec import Stopping


def rule_of(stopping: Stopping) -> StoppingRule:
    """Return the statistics' rule for what a specification says."""
    return StoppingRule(
        precision=stopping.precision,
        blocks_min=stopping.blocks_min,
        blocks_max=stopping.blocks_max,
        budget_s=stopping.budget_s or None,
    )


def least_blocks(stopping: Stopping) -> int:
    """Return the number of blocks after which the rule can be met at the earliest."""
    return min(stopping.blocks_min + rule_of(stopping).confirmations, stopping.blocks_max)


class Repetition:
    """The trials of a run folder as far as they are there, each analysed once."""

    def __init__(self, directory: Path, stopping: Stopping) -> None:
        self._directory = directory
        self._stopping = stopping
        self._contents: dict[str, dict[str, Any]] = {}

    def content(self, trial_id: str, anew: bool = False) -> dict[str, Any]:
        """Return what the analysis says of a trial."""
        if anew or trial_id not in self._contents:
            self._contents[trial_id] = analyse_trial(self._directory, trial_id).content
        return self._contents[trial_id]

    def decide(self, block: int, elapsed_s: float) -> dict[str, Any]:
        """Decide after a block whether another one is run; `elapsed_s` is what the trials so far took."""
        plan = read_run(self._directory)["plan"]
        contents = [self.content(planned["id"]) for planned in plan if planned["block"] <= block]
        values, left_out = gating_values(contents, list(self._stopping.metrics))
        rule = rule_of(self._stopping)
        try:
            decision = decide(values, rule, elapsed_s, elapsed_s / block).as_dict()
        except LabError:
            decision = {"stop": False, "kind": "continue", "reason": "no trial could be used yet"}
            decision |= {"blocks": 0, "widths": {}, "blocks_expected": None}
        decision |= {"block": block, "elapsed_s": elapsed_s, "left_out": left_out}
        if not decision["stop"] and rule.budget_s and elapsed_s * (block + 1) / block > rule.budget_s:
            # Blocks that are not whole do not count as blocks, but they do take time.
            decision |= {
                "stop": True,
                "kind": "budget",
                "reason": f"the budget is spent; {decision['reason']}",
            }
        if not decision["stop"] and block >= self._stopping.blocks_max:
            decision |= {"stop": True, "kind": "maximum"}
            decision["reason"] = (
                f"{block} blocks are the maximum, of which {decision['blocks']} were whole; {decision['reason']}"
            )
        return decision
