"""`predictions.json`: what the models predict for each configuration, beside what was measured."""

from msgspec import Struct, field

from waylab.runfolder.rules import RuleResult

# Parameters of a model by name, with the unit at the end of the name.
Parameters = dict[str, int | float | list[float]]


class MetricValues(Struct, frozen=True, kw_only=True):
    """The metrics that are compared, measured or predicted, or the relative error of a prediction."""

    throughput_per_s: float | None = None  # requests per second
    response_mean_ns: float | None = None  # mean response time in nanoseconds
    response_p95_ns: float | None = None  # 95th percentile of the response time in nanoseconds


class Forecast(MetricValues, frozen=True, kw_only=True):
    """What a model predicts for one configuration."""

    utilisation: float | None = None  # utilisation of the busiest station
    waits_probability: float | None = None  # probability that a request waits


class Prediction(Struct, frozen=True, kw_only=True):
    """One model on one configuration."""

    model: str  # name of the model
    configuration: str  # name of the configuration
    x: float | str  # value of the factor along the figures
    series: str  # name of the line
    role: str  # calibration, held-out or ""
    applies: bool  # whether the model applies
    reason: str | None  # why it does not apply
    source: str | None  # where its parameters come from
    parameters: Parameters | None  # parameters of the model; null if it could not be fitted
    measured: MetricValues  # what was measured
    predicted: Forecast | None  # what the model predicts; null if it does not apply
    error: MetricValues = field(default_factory=MetricValues)  # predicted / measured - 1
    throughput_interval_per_s: list[float] | None = None  # both ends of the 90 % prediction interval
    response_mean_interval_ns: list[float] | None = None  # both ends of the 90 % prediction interval


class ErrorSummary(Struct, frozen=True, kw_only=True):
    """The absolute relative errors of a model in one metric."""

    median_error: float | None  # median over the configurations
    largest_error: float | None  # maximum over the configurations


class ModelSummary(Struct, frozen=True, kw_only=True):
    """The errors of a model over all configurations, or over the held-out ones if there are any."""

    model: str  # name of the model
    role: str  # held-out or ""
    configurations: int  # number of configurations
    applies: int  # number of configurations to which the model applies
    source: str | None  # where its parameters come from
    throughput_per_s: ErrorSummary  # errors of the throughput
    response_mean_ns: ErrorSummary  # errors of the mean response time


class Predictions(Struct, frozen=True, kw_only=True):
    """All models on all configurations of a run."""

    format: str  # waylab-predictions/1
    waylab: str  # version of the lab
    entries: list[Prediction]  # by model and configuration
    summary: list[ModelSummary]  # by model
    facts: list[str]  # the errors in sentences
    rules: list[RuleResult] = field(default_factory=list)  # rules of refuted_by about models, evaluated
