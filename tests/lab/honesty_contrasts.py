"""Campaigns of known truth for everything that compares: ratios, families, rules, and two versions.

Every trial is a log-normal value with effects of its run, its block and its configuration.
"""

import math
from collections.abc import Callable

import numpy as np
from honesty_shapes import SHAPES
from scenario import FLAGGED, Outcome, Scenario

from waylab.analysis.across.contrasts.model import as_family, significant
from waylab.analysis.across.contrasts.verdicts import BETTER, NO_WORSE, WORSE, verdict
from waylab.analysis.across.contrasts.versions import two_samples
from waylab.analysis.statistics.blocks import BlockModel, Contrast, contrast_of_mean, fit_blocks
from waylab.analysis.statistics.diagnostics import diagnose, judged_together
from waylab.analysis.statistics.pairs import ratio_of
from waylab.analysis.statistics.repetitions import positive_mean_interval
from waylab.runfolder.numbers import Ratio

Run = Callable[[int, np.random.Generator], Outcome]
METRIC = "throughput_per_s"
_RATIO, _MARGIN = 1.07, 0.05


def campaign(
    random: np.random.Generator, configurations: int, blocks: int, spreads: float | np.ndarray
) -> tuple[list[str], list[int], np.ndarray]:
    """Names, blocks and logarithms of complete blocks that drift; all configurations have the same truth."""
    names = [f"c{one}" for _ in range(blocks) for one in range(configurations)]
    places = np.repeat(np.arange(blocks), configurations)
    drift = np.cumsum(random.normal(0, 0.1, blocks))[places]
    noise = random.normal(size=len(names)) * np.tile(np.broadcast_to(spreads, configurations), blocks)
    return names, places.tolist(), drift + noise


def fitted(names: list[str], places: list[int], logs: np.ndarray) -> BlockModel:
    return fit_blocks(names, places, np.exp(logs).tolist())


def judged(contrast: Contrast, margin: float = 0.0) -> Ratio:
    return Ratio(**vars(ratio_of(contrast, 3, margin, better=1)))


def coverage(configurations: int, blocks: int, spreads: float | np.ndarray = 0.04, missing: int = 0) -> Run:
    """The ratio of the second half of the configurations to the first, by the one model of all of them."""
    half = configurations // 2
    weights = {f"c{one}": (1 if one >= half else -1) / half for one in range(2 * half)}

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        covered = 0
        for _ in range(campaigns):
            names, places, logs = campaign(random, configurations, blocks, spreads)
            logs = logs + math.log(_RATIO) * np.array([int(name[1:]) >= half for name in names])
            kept = np.sort(random.permutation(len(names))[missing:])
            model = fitted([names[one] for one in kept], [places[one] for one in kept], logs[kept])
            low, high = model.contrast(weights).interval()
            covered += low <= math.log(_RATIO) <= high
        return Outcome(campaigns, campaigns, covered)

    return run


def two_of_many(campaigns: int, random: np.random.Generator) -> Outcome:
    """Two of six configurations, which are noisier than the others: a contrast has the error of its own."""
    spreads = np.array([0.06, 0.06, 0.02, 0.02, 0.02, 0.02])
    covered = 0
    for _ in range(campaigns):
        names, places, logs = campaign(random, 6, 4, spreads)
        kept = [place for place, name in enumerate(names) if name in ("c0", "c1")]
        model = fitted([names[one] for one in kept], [places[one] for one in kept], logs[kept])
        low, high = model.contrast({"c1": 1, "c0": -1}).interval()
        covered += low <= 0 <= high
    return Outcome(campaigns, campaigns, covered)


def pooled_error(campaigns: int, random: np.random.Generator) -> Outcome:
    """The same with the error of all six configurations, which the lab does not use for this reason."""
    spreads = np.array([0.06, 0.06, 0.02, 0.02, 0.02, 0.02])
    covered = 0
    for _ in range(campaigns):
        low, high = fitted(*campaign(random, 6, 4, spreads)).contrast({"c1": 1, "c0": -1}).interval()
        covered += low <= 0 <= high
    return Outcome(campaigns, campaigns, covered)


def against_base(random: np.random.Generator, configurations: int) -> list[Ratio]:
    """The ratio of every configuration to the first, each with the error of its two configurations."""
    names, places, logs = campaign(random, configurations, 3, 0.04)
    ratios = []
    for one in range(1, configurations):
        kept = [place for place, name in enumerate(names) if name in ("c0", f"c{one}")]
        model = fitted([names[place] for place in kept], [places[place] for place in kept], logs[kept])
        ratios.append(judged(model.contrast({f"c{one}": 1, "c0": -1})))
    return ratios


def family(configurations: int, metrics: int) -> Run:
    """A table of all configurations against the first, in several metrics: any of its ratios is called a change."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        alarms = 0
        for _ in range(campaigns):
            ratios = []
            for _ in range(metrics):
                ratios += against_base(random, configurations)
            alarms += any(significant(ratio) for ratio in as_family(ratios))
        return Outcome(campaigns, campaigns, alarms)

    return run


def simultaneous(campaigns: int, random: np.random.Generator) -> Outcome:
    """All simultaneous intervals of a table of seven ratios cover; they are conservative."""
    covered = 0
    for _ in range(campaigns):
        ratios = as_family(against_base(random, 8))
        covered += all(ratio.family_low <= 1 <= ratio.family_high for ratio in ratios)
    return Outcome(campaigns, campaigns, covered)


def residual_checks(campaigns: int, random: np.random.Generator) -> Outcome:
    """Five checks of five metrics on residuals of a model that is right: any of them is against it."""
    alarms = 0
    for _ in range(campaigns):
        checks = []
        for _ in range(5):
            names, places, logs = campaign(random, 6, 5, 0.04)
            logs = logs + 0.3 * np.array([int(name[1:]) for name in names])
            model = fitted(names, places, logs)
            checks += diagnose(
                model.residuals, model.fitted, np.arange(len(names)), names, model.residual_covariance
            ).checks
        alarms += any(check.kept is False for check in judged_together(checks))
    return Outcome(campaigns, campaigns, alarms)


def rule_at_its_threshold(campaigns: int, random: np.random.Generator) -> Outcome:
    """The true ratio is the threshold of a rule: refuting it would be wrong."""
    refuted = 0
    for _ in range(campaigns):
        contrast = fitted(*campaign(random, 6, 3, 0.04)).contrast({"c1": 1, "c0": -1})
        refuted += contrast.p_above(0.0) < 0.025
    return Outcome(campaigns, campaigns, refuted)


def interleaved(between: float, ratio: float = 1.0, wrong: tuple[str, ...] = (WORSE, BETTER)) -> Run:
    """Two versions as arms of one run of two configurations in six mirrored blocks (`waylab ab`)."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        alarms = 0
        for _ in range(campaigns):
            names, places, logs = campaign(random, 4, 6, 0.03)
            logs = logs + random.normal(0, between) if between else logs
            logs = logs + math.log(ratio) * np.array([name in ("c2", "c3") for name in names])
            model = fitted(names, places, logs)
            found = judged(model.contrast({"c0": -0.5, "c1": -0.5, "c2": 0.5, "c3": 0.5}), _MARGIN)
            alarms += verdict(found, METRIC) in wrong
        return Outcome(campaigns, campaigns, alarms)

    return run


def _runs(random: np.random.Generator, runs: int, between: float) -> np.ndarray:
    """Logarithms of separate runs of five blocks each, of shape (runs, blocks)."""
    return random.normal(0, between, (runs, 1)) + random.normal(0, 0.03, (runs, 5))


def separate(between: float, runs: int) -> Run:
    """The same version in separate runs on both sides (`waylab compare`): it is called better or worse."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        alarms = 0
        for _ in range(campaigns):
            before, after = (_runs(random, runs, between).mean(axis=1).tolist() for _ in range(2))
            alarms += verdict(judged(two_samples(before, after), _MARGIN), METRIC) in (WORSE, BETTER)
        return Outcome(campaigns, campaigns, alarms)

    return run


def unequal(campaigns: int, random: np.random.Generator) -> Outcome:
    """Three noisy runs against eight quiet ones of the same throughput: they are called better or worse."""
    alarms = 0
    for _ in range(campaigns):
        before, after = random.normal(0, 0.08, 3).tolist(), random.normal(0, 0.01, 8).tolist()
        alarms += verdict(judged(two_samples(before, after), _MARGIN), METRIC) in (WORSE, BETTER)
    return Outcome(campaigns, campaigns, alarms)


def paired_single_runs(between: float) -> Run:
    """Block k of one run paired with block k of another, as an earlier version of the lab did it."""

    def run(campaigns: int, random: np.random.Generator) -> Outcome:
        alarms = 0
        for _ in range(campaigns):
            before, after = (_runs(random, 1, between)[0] for _ in range(2))
            alarms += verdict(judged(contrast_of_mean((after - before).tolist())), METRIC) in (WORSE, BETTER)
        return Outcome(campaigns, campaigns, alarms)

    return run


def positive_mean(campaigns: int, random: np.random.Generator) -> Outcome:
    """Five runs with a spread of 10 %: the interval that is never below zero."""
    covered = 0
    for values in np.exp(random.normal(0, 0.1, (campaigns, 5))):
        found = positive_mean_interval(values.tolist())
        covered += found.low <= math.exp(0.1**2 / 2) <= found.high
    return Outcome(campaigns, campaigns, covered)


CONTRASTS = [
    *SHAPES,
    Scenario("mean of five runs on the log scale, spread 10 %", positive_mean),
    Scenario("ratio of two sides, model of six configurations, three blocks", coverage(6, 3)),
    Scenario("ratio of two configurations, three blocks", coverage(2, 3)),
    Scenario("ratio with four of 24 trials missing", coverage(6, 4, missing=4)),
    Scenario(
        "ratio of two sides, spreads from 2 to 6 %",
        coverage(6, 4, np.array([0.02, 0.04, 0.06, 0.02, 0.04, 0.06])),
    ),
    Scenario("ratio of the two noisiest of six configurations, spreads 6 and 2 %", two_of_many),
    Scenario(
        "the same with the error of all configurations", pooled_error, None, None, notes="shown as a warning"
    ),
    Scenario("any of seven changes against the base case, one metric", family(8, 1), **FLAGGED),
    Scenario("any of 35 changes against the base case, five metrics", family(8, 5), **FLAGGED),
    Scenario("simultaneous intervals of seven ratios", simultaneous, 0.93, None),
    Scenario("any of 25 residual checks of five metrics", residual_checks, **FLAGGED),
    Scenario("rule refuted with the truth at its threshold", rule_at_its_threshold, **FLAGGED),
    *(
        Scenario(
            f"A/A interleaved, runs differ by {100 * between:g} %: called different",
            interleaved(between),
            **FLAGGED,
        )
        for between in (0.0, 0.02, 0.05)
    ),
    *(
        Scenario(
            f"A/A of {runs} and {runs} separate runs that differ by {100 * between:g} %: called different",
            separate(between, runs),
            **FLAGGED,
        )
        for runs in (2, 4)
        for between in (0.0, 0.02, 0.05)
    ),
    Scenario(
        "3 separate runs that differ by 8 % and 8 that differ by 1 %: called different", unequal, **FLAGGED
    ),
    *(
        Scenario(
            f"A/A of single runs paired by block that differ by {100 * between:g} %: called different",
            paired_single_runs(between),
            None,
            None,
            notes="the earlier way, shown as a warning",
        )
        for between in (0.02, 0.04)
    ),
    Scenario(
        "a loss of the margin, interleaved: called no worse",
        interleaved(0.02, 1 / (1 + _MARGIN), (NO_WORSE, BETTER, "equivalent")),
        **FLAGGED,
    ),
    Scenario("a loss of 10 %, interleaved: called worse", interleaved(0.02, 0.9, (WORSE,)), 0.9, None),
]
