"""The part of `analysis.json` about factorial designs: effects, shares of the variation and checks of the residuals."""

from msgspec import Struct, field


class Effect(Struct, frozen=True, kw_only=True):
    """The effect of a level, of a factor or of an interaction: a contrast of the same model as every comparison."""

    name: str  # names of the factors, or factor, level and first level
    ratio: float  # the metric at the level over that at the factor's first level; of an interaction a ratio of ratios
    low: float | None  # lower end of the 95 % interval
    high: float | None  # upper end of the 95 % interval
    p_family: float | None  # p-value of ratio 1, adjusted for all effects on this metric (Holm)
    significant: bool | None  # whether p_family is below 5 %
    relative: float | None  # ratio minus 1
    relative_low: float | None  # lower end of the interval, minus 1
    relative_high: float | None  # upper end of the interval, minus 1
    aliases: list[str] = field(default_factory=list)  # effects confounded with this one


class Share(Struct, frozen=True, kw_only=True):
    """The share of the variation that a source explains."""

    name: str  # names of the factors, blocks, further interactions or error
    share: float  # share of the total variation
    significant: bool | None  # whether the source is significant at 5 %
    f: float | None = None  # statistic of the F test
    p: float | None = None  # p-value of the F test


class ResidualCheck(Struct, frozen=True, kw_only=True):
    """A check of an assumption about the residuals."""

    name: str  # the assumption
    statistic: float | None  # statistic of the test
    p: float | None  # p-value of the test
    kept: bool | None  # whether the assumption is kept; null if it cannot be tested
    text: str  # the result in words


class Residual(Struct, frozen=True, kw_only=True):
    """The residual of one trial."""

    trial: str  # name of the trial
    configuration: str  # name of the configuration
    order: int  # position in the plan
    residual: float  # on the scale of the model
    previous: float | None  # residual of the trial before
    fitted: float  # value of the model
    normal: float  # normal quantile of the residual's rank


class FactorialMetric(Struct, frozen=True, kw_only=True):
    """The effects of the factors on one metric."""

    metric: str  # name of the metric
    title: str  # title of the metric
    effects: list[Effect]  # effects in the order of the factors
    shares: list[Share]  # shares of the variation of the logarithm; they sum to 1
    error_deviation: float | None  # standard deviation of the errors of the logarithm
    degrees: int  # degrees of freedom of the errors
    checks: list[ResidualCheck]  # checks of the residuals; all checks of a metric together are wrong in 5 %
    residuals: list[Residual]  # residuals in the order of the trials
    text: str  # why there are no checks


class Factorial(Struct, frozen=True, kw_only=True):
    """The effects of the factors on every metric, from complete blocks."""

    kind: str | None = None  # 2k or general; null if there is no analysis
    text: str = ""  # why there is no analysis
    levels: dict[str, list[str]]  # labels by factor
    blocks: int = 0  # number of complete blocks
    metrics: list[FactorialMetric] = field(default_factory=list)  # one for each metric
