"""Rules of a hypothesis about a model: the median of its absolute relative errors against a limit."""

import math
import statistics
from collections.abc import Iterable, Sequence

from scipy import stats

from waylab.analysis.across.answer.rules import Quantity, judged
from waylab.errors import LabError
from waylab.predict.forecasts import MODELS
from waylab.predict.held_out import RUN_MODELS
from waylab.runfolder.prediction import Prediction
from waylab.runfolder.rules import RefutationRule, RuleResult

HELD_OUT = "held-out"
_TAIL = 0.025


def model_rules(rules: list[RefutationRule], entries: list[Prediction]) -> list[RuleResult]:
    """Evaluate the rules about models on the held-out configurations, or on all if none was held out."""
    ours = [rule for rule in rules if rule.kind == "model"]
    return judged(ours, [_quantity(rule, entries) for rule in ours])


def check_models(models: Iterable[str]) -> None:
    """Check the names of models in rules.

    Raises:
        LabError: for a name that no model has.
    """
    known = [*(model.name for model in MODELS), *RUN_MODELS]
    for index, name in enumerate(models):
        if name and name not in known:
            raise LabError(f"refuted_by[{index}].model = {name!r}: is not a model; known: {', '.join(known)}")


def _quantity(rule: RefutationRule, entries: list[Prediction]) -> Quantity:
    mine = [entry for entry in entries if entry.model == rule.model]
    mine = [entry for entry in mine if entry.role == HELD_OUT] or mine
    found = [getattr(entry.error, rule.metric) for entry in mine]
    errors = sorted(abs(error) for error in found if error is not None)
    if not errors:
        return Quantity("", None, reason="there is no configuration on which the model could be judged")
    median, (low, high) = statistics.median(errors), median_interval(errors)
    words = f"{100 * median:.2g} %"
    if low is None or high is None:
        reason = f"{len(errors)} configurations are too few for an interval of a median; it takes 6"
        return Quantity(words, median, blocks=len(errors), reason=reason)
    words += f" (95 % interval {100 * low:.2g} to {100 * high:.2g} %, {len(errors)} configurations)"
    refuted, kept = _signs(errors, rule)
    return Quantity(words, median, low, high, len(errors), refuted, kept)


def median_interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the interval of the median by order statistics, for sorted values; None for fewer than six.

    David and Nagaraja, Order Statistics, 2003, 7.1. Its level is at least 95 %.
    """
    count = len(values)
    place = int(stats.binom.ppf(_TAIL, count, 0.5))
    while place and stats.binom.cdf(place - 1, count, 0.5) > _TAIL:
        place -= 1
    return (values[place - 1], values[count - place]) if place else (None, None)


def _signs(errors: Sequence[float], rule: RefutationRule) -> tuple[float, float]:
    """Return the p-values of both decisions, by sign tests of the median."""
    refuted, kept = 1.0, 0.0
    count = len(errors)
    for limit, sign in ((rule.above, 1), (rule.below, -1)):
        if limit is not None and not math.isinf(limit):
            beyond = sum(sign * (error - limit) > 0 for error in errors)
            refuted = min(refuted, float(stats.binom.sf(beyond - 1, count, 0.5)))
            kept = max(kept, float(stats.binom.cdf(beyond, count, 0.5)))
    return refuted, kept
