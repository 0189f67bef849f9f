"""What the measurement says, in sentences made of numbers only: facts beside the hypothesis, no verdict."""

from waylab.analysis.across.answer.published import published_facts
from waylab.analysis.across.contrasts.effects import factorial_facts
from waylab.analysis.across.contrasts.model import family_size, metric_model
from waylab.analysis.across.contrasts.verdicts import verdict_sentence
from waylab.analysis.across.curves import curve_facts
from waylab.analysis.trial.links import link_facts
from waylab.runfolder.analysis import Analysis, Comparison, Configuration, Family
from waylab.runfolder.metric_words import metric_words
from waylab.runfolder.numbers import Interval
from waylab.runfolder.run import GateLimits
from waylab.runfolder.words import level_text, rate_text, time_text


def facts(content: Analysis, limits: GateLimits) -> list[str]:
    """Return the facts that no sentence of the first screen, rule or effect states; `limits` are the gates'."""
    sentences = [_passed(content, limits), *_speed(content), *_peaks(content)]
    sentences += link_facts(content.configurations)
    sentences += _last_steps(content)
    sentences += curve_facts(content.curves)
    sentences += factorial_facts(content.factorial)
    for comparison in content.comparisons:
        sentences += _judged(comparison)
        # The comparisons of effects are in `answer`.
        sentences += [f"{comparison.verdict_text}{_missing(comparison)}"] * (comparison.role != "effect")
        sentences += _strata(comparison)
    return sentences + published_facts(content.published)


def _passed(content: Analysis, limits: GateLimits) -> str:
    trials = content.trials
    used = sum(trial.used for trial in trials)
    left_out = "" if used == len(trials) else ". The others are shown and left out"
    return f"{used} of {len(trials)} trials {limits.passed}{left_out}."


def _speed(content: Analysis) -> list[str]:
    """Say whether contrasts are adjusted for the speed of the machine; nothing if no trial measured it."""
    used = [trial for trial in content.trials if trial.used and trial.numbers]
    probes_ns = [probe for trial in used if (probe := trial.measured().cpu.probe_ns)]
    if not probes_ns:
        return []
    least, most = time_text(min(probes_ns)), time_text(max(probes_ns))
    measured = f"A fixed computation took {least} to {most} of CPU time in the trials"
    slope = metric_model(used, "throughput_per_s").speed
    if slope is None:
        return [
            f"{measured}. Throughputs are not adjusted for the speed of the machine, because it differs between "
            "configurations, because there are too few trials, or because a trial lacks the measurement."
        ]
    return [
        f"{measured}. Ratios are adjusted for the speed of the machine: if the computation takes 1 % longer, the "
        f"throughput changes by {slope.estimate:+.2f} % (standard error {slope.error:.2f})."
    ]


def _peaks(content: Analysis) -> list[str]:
    x = content.axes.x
    series: dict[str, list[Configuration]] = {}
    for configuration in content.configurations:
        if configuration.used:
            series.setdefault(configuration.series, []).append(configuration)
    sentences = []
    for name, members in series.items():
        best = max(members, key=lambda member: member.throughput_per_s.known_mean())
        response_ns = best.operations["all"].response_mean_ns.mean if "all" in best.operations else None
        where = f" at {level_text(x, best.levels[x])}" if x else ""
        response = (
            f", with a mean response time of {time_text(response_ns)}" if response_ns is not None else ""
        )
        sentences.append(
            f"{name}: the highest mean throughput is {rate_text(best.throughput_per_s.mean)} requests/s"
            f"{_plus_minus(best.throughput_per_s)}{where}{response}."
        )
    return sentences


def _last_steps(content: Analysis) -> list[str]:
    """Say how throughput and response time change over the last step of the factor along the figures."""
    x, levels = content.axes.x, content.axes.levels
    if x is None or not content.axes.numeric or len(levels) < 2:
        return []
    places = {(c.series, c.x): c for c in content.configurations if "all" in c.operations}
    sentences = []
    for series in dict.fromkeys(series for series, _ in places):
        before, after = (places.get((series, level)) for level in levels[-2:])
        if before and after:
            rate = after.throughput_per_s.known_mean() / before.throughput_per_s.known_mean() - 1
            response = _response_ns(after) / _response_ns(before) - 1
            sentences.append(
                f"{series}: from {before.levels[x]} to {level_text(x, after.levels[x])}, the mean throughput "
                f"{_changed(rate)} and the mean response time {_changed(response)}."
            )
    return sentences


def _changed(share: float) -> str:
    return f"{'rises' if share >= 0 else 'falls'} by {100 * abs(share):.1f} %"


def _response_ns(configuration: Configuration) -> float:
    return configuration.operations["all"].response_mean_ns.known_mean()


def _plus_minus(interval: Interval) -> str:
    if interval.low is None:
        return (
            f" ({interval.count} trials, no interval)" if interval.count > 1 else " (one trial, no interval)"
        )
    return (
        f" (95 % interval {rate_text(interval.low)} to {rate_text(interval.high)}, {interval.count} trials)"
    )


def answer(content: Analysis) -> list[str]:
    """Return the announced comparisons in words that name the levels, each with its number and verdict."""
    return [_compared(one) for one in content.comparisons if one.role == "effect"]


def _compared(comparison: Comparison) -> str:
    overall = comparison.overall
    head = _head(comparison)
    head += f", averaged over {comparison.over}" if comparison.over else ""
    return verdict_sentence(overall, comparison.metric, comparison.margin, head)


def _head(comparison: Comparison) -> str:
    """Name metric and levels: `Throughput with 3 replicas against 1 replica`."""
    factor = comparison.factor
    of, to = (level_text(factor, label) for label in (comparison.candidate, comparison.baseline))
    head = f"{metric_words(comparison.metric)} with {of} against {to}"
    return head[0].upper() + head[1:]


def families(content: Analysis) -> list[Family]:
    """Name the families of tests, each with its size and its correction."""
    effects = [one.overall for one in content.comparisons if one.role == "effect"]
    nulls = [one.overall for one in content.comparisons if one.role == "null"]
    rules = sum(one.p is not None for one in content.rules)
    checks = sum(check.p is not None for metric in content.factorial.metrics for check in metric.checks)
    findings = content.published.family if content.published else 0
    found = [
        Family(name="announced comparisons", size=family_size(effects)),
        Family(name="null arms", size=family_size(nulls)),
        Family(name="refutation rules", size=rules),
        Family(name="changes against the base case", size=content.changes.family),
        *(
            Family(
                name=f"effects on {metric.title}", size=sum(e.p_family is not None for e in metric.effects)
            )
            for metric in content.factorial.metrics
        ),
        Family(name="findings of the study", size=findings),
        Family(name="residual checks", size=checks),
    ]
    return [family for family in found if family.size]


def _missing(comparison: Comparison) -> str:
    return " No pair of trials passed the gates." if comparison.overall.ratio is None else ""


def _judged(comparison: Comparison) -> list[str]:
    """Say of a null arm or a positive control whether the campaign passed it."""
    arms = (("Null arm", comparison.null), ("Positive control", comparison.control))
    return [
        f"{title}, {comparison.metric} of {comparison.candidate} against {comparison.baseline}: {arm.text}."
        for title, arm in arms
        if arm is not None
    ]


def _strata(comparison: Comparison) -> list[str]:
    strata = [(part.ratio, part.levels) for part in comparison.strata if part.ratio is not None]
    if len(strata) < 2:
        return []
    low, high = min(strata), max(strata)
    return [
        f"{_head(comparison)}: the ratio is lowest with {low[1]} ({low[0]:.4f}) and highest with {high[1]} "
        f"({high[0]:.4f})."
    ]
