"""CPU time that other programs and other virtual machines used during the trials."""

from collections.abc import Sequence
from statistics import fmean

from waylab.analysis.trial.numbers import TrialResult
from waylab.runfolder.words import share_text

# The report has a warning if the mean share over all trials is at least this.
FOREIGN_MIN = 0.1
STEAL_MIN = 0.1


def foreign_share(trials: Sequence[TrialResult]) -> float:
    """Return the share of the machine's CPU time that other programs used, on average over trials."""
    shares = [trial.numbers.cpu.foreign_share for trial in trials if trial.content.numbers]
    known = [share for share in shares if share is not None]
    return fmean(known) if known else 0.0


def busy_machine(trials: Sequence[TrialResult]) -> list[str]:
    """Return one line if the machine was busy during the trials that ran, used or not; nothing otherwise."""
    ran = [trial.numbers.cpu for trial in trials if trial.content.numbers]
    foreign = [cpu.foreign_share for cpu in ran if cpu.foreign_share is not None]
    steal = [cpu.steal_share for cpu in ran if cpu.steal_share is not None]
    causes = [
        f"{words} {share_text(fmean(shares))} of its CPU time (worst trial: {share_text(max(shares))})"
        for words, shares, limit in (
            ("other programs used", foreign, FOREIGN_MIN),
            ("other virtual machines took", steal, STEAL_MIN),
        )
        if shares and fmean(shares) >= limit
    ]
    return [f"Busy machine: {', and '.join(causes)}."] if causes else []
