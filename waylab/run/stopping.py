"""The number of blocks of a run: all blocks of the plan, or those until the stopping rule is met.

Writes the decisions to `stopping.json`. The caller provides the rule, because `run` may not import `analysis`.
"""

from collections.abc import Callable
from pathlib import Path

from msgspec import convert

from waylab.plan import Plan, Trial
from waylab.runfolder import paths
from waylab.runfolder.files import read_stopping, read_trial, write
from waylab.runfolder.stopping import BlockDecision, StoppingRuleSettings
from waylab.runfolder.stopping import Stopping as StoppingFile
from waylab.spec import StoppingSettings

# Called with the number of blocks so far and the duration of their trials in seconds.
Decide = Callable[[int, float], BlockDecision]


def blocks_run(directory: Path) -> int | None:
    """Return the last block of a run; None if the rule is not yet met, or there is no rule."""
    stopping = read_stopping(directory)
    return stopping.block if stopping and stopping.stop else None


class BlockDecisions:
    """The decisions of one run. None is made twice, not even if the run is resumed."""

    def __init__(self, directory: Path, rule: StoppingSettings, plan: Plan, decide: Decide | None) -> None:
        self._directory = directory
        self._rule = rule
        self._plan = plan
        self._decide = decide if rule.precision else None
        kept = read_stopping(directory)
        self._decisions: list[BlockDecision] = kept.decisions if kept else []

    @property
    def horizon(self) -> int:
        """The probable last block."""
        last = max(trial.block for trial in self._plan.trials)
        if not self._decisions:
            return last
        return min(last, self._decisions[-1].blocks_expected or last)

    def catch_up(self, waiting: list[Trial]) -> None:
        """Make missing decisions: the lab may have been killed between a block and its decision."""
        first = min((trial.block for trial in waiting), default=None)
        for block in sorted({trial.block for trial in self._plan.trials}):
            if (first is not None and block >= first) or self.ends_after(block):
                return

    def ends_after(self, block: int) -> bool:
        """Decide after a block, or return the earlier decision."""
        if self._decide is None:
            return False
        for decision in self._decisions:
            if decision.block == block:
                return decision.stop
        if self._decisions and self._decisions[-1].stop:
            return True
        decision = self._decide(block, self._elapsed_s(block))
        self._decisions.append(decision)
        write(
            self._directory / paths.STOPPING,
            StoppingFile(
                format=paths.STOPPING_FORMAT,
                rule=convert(self._rule, StoppingRuleSettings, from_attributes=True),
                stop=decision.stop,
                kind=decision.kind,
                reason=decision.reason,
                block=block,
                decisions=self._decisions,
            ),
        )
        return decision.stop

    def _elapsed_s(self, block: int) -> float:
        """Return the duration of the trials, not the elapsed time, so that a resumed run decides the same."""
        before = [trial.id for trial in self._plan.trials if trial.block <= block]
        outcomes = [read_trial(self._directory, trial_id) for trial_id in before]
        return sum(outcome.took_s for outcome in outcomes if outcome)
