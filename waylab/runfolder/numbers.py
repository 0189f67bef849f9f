"""Means, ratios and laws as the files of a run folder store them. Does not know how they are computed."""

from typing import Annotated

from msgspec import Meta, Struct

# Counts, clocks and amounts in files that the lab did not write. With these limits, sums of them cannot overflow.
Count = Annotated[int, Meta(ge=0, le=(1 << 62))]
Amount = Annotated[float, Meta(ge=0, le=1e18)]

# Percentiles by name ("50", "99.9"), in nanoseconds. A percentile with fewer than ten values beyond it is left out.
Percentiles = dict[str, int]


class Interval(Struct, frozen=True, kw_only=True):
    """A mean over trials with its 95 % interval (Student's t), in the unit that the field's name ends with."""

    count: int  # number of trials
    mean: float | None  # mean over the trials; null without a trial
    low: float | None  # lower end of the interval; null with fewer than three trials
    high: float | None  # upper end of the interval

    def known_mean(self) -> float:
        """Return the mean of a configuration of which at least one trial was used."""
        assert self.mean is not None, "an interval of a used configuration has a mean"
        return self.mean


class Ratio(Struct, frozen=True, kw_only=True):
    """The ratio candidate / baseline: a contrast of the model logarithm = configuration + block + error."""

    blocks: int  # number of blocks with both sides
    ratio: float | None  # estimated ratio; null without a pair
    low: float | None  # lower end of the 95 % interval; null with fewer than two degrees of freedom
    high: float | None  # upper end of the 95 % interval
    excludes_1: bool | None  # whether the interval excludes 1; null without an interval
    equivalent: bool | None  # result of the equivalence test; null without a margin or an interval
    no_worse: bool | None = None  # result of the one-sided test against the margin; null without a margin
    degrees: float = 0  # degrees of freedom of the error
    error: float | None = None  # standard error of the ratio's logarithm
    p: float | None = None  # p-value of the two-sided test of ratio 1
    p_family: float | None = None  # the same, adjusted for the family of comparisons (Holm)
    family_low: float | None = None  # lower end of the interval that holds for the whole family at once
    family_high: float | None = None  # upper end of that interval
    reason: str = ""  # why there is no interval, or how many blocks would decide


class NullArm(Ratio, frozen=True, kw_only=True):
    """A comparison of a level with itself under another name."""

    flagged: bool | None  # whether the two differ, which they must not; null with fewer than two blocks
    text: str  # the result in words


class PositiveControl(Struct, frozen=True, kw_only=True):
    """A comparison with a level to which a known amount was added."""

    blocks: int  # number of blocks with a pair
    added: float  # the amount that was added, in the metric's unit, or the expected ratio
    mean: float | None  # mean paired difference in the metric's unit, or the ratio
    low: float | None  # lower end of the interval; null with fewer than two blocks
    high: float | None  # upper end of the interval
    found: bool | None  # whether the interval excludes no change on the right side
    exact: bool | None  # whether the interval also contains the added amount
    text: str  # the result in words


class Law(Struct, frozen=True, kw_only=True):
    """An operational law, checked between numbers that were measured independently of each other."""

    name: str  # name of the law
    expected: float | None  # the value that the law gives
    found: float | None  # the measured value
    residual: float | None  # found / expected - 1; null if the expected value is 0
    limit: float  # largest residual, in absolute value, with which the law holds
    holds: bool | None  # whether the law holds; null if it cannot be checked
    text: str  # the result in words


class WorstLaw(Law, frozen=True, kw_only=True):
    """A law in the trial of a configuration that is furthest off."""

    trials: int  # number of trials in which the law was checked
    broken: int  # number of trials in which the law does not hold
