"""Where throughput bends and responses become slow along the factor of the figures, line by line."""

from waylab.analysis.across.intervals import struct_of
from waylab.analysis.statistics.knee import asymptotes_crossing, first_slow_load, knee
from waylab.analysis.trial.numbers import TrialResult
from waylab.errors import LabError
from waylab.runfolder.analysis import Axes, Bend, Configuration, Curve
from waylab.runfolder.run import ExperimentSpec

# Only along these does throughput rise and bend; along the size of values, say, a knee would mean nothing.
_LOADS = ("load.clients", "load.rate", "load.pipeline", "load.threads")
# In a closed loop these make the number of requests in flight.
_IN_FLIGHT = ("load.clients", "load.pipeline")
_LOADS_MIN = 4
_PERCENT = "95"


def curve_results(
    spec: ExperimentSpec, configurations: list[Configuration], trials: list[TrialResult], axes: Axes
) -> list[Curve]:
    """Knee, crossing of the asymptotes and first slow load of every line with at least four measured loads.

    Empty if the axis is not a load.
    """
    keys = {factor.name: factor.key for factor in spec.factors}
    if axes.x is None or not axes.numeric or keys.get(axes.x) not in _LOADS:
        return []
    series: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        if configuration.used:
            series.setdefault(configuration.series, []).append(configuration)
    return [
        _curve(name, axes.x, members, trials, keys[axes.x] in _IN_FLIGHT)
        for name, members in series.items()
        if len(members) >= _LOADS_MIN
    ]


def curve_facts(curves: list[Curve]) -> list[str]:
    """Say for every line where it bends and where it becomes slow."""
    return [
        f"{curve.series}, {words} along {curve.x}: {bend.text}."
        for curve in curves
        for words, bend in (
            ("throughput", curve.knee),
            ("throughput", curve.crossing),
            (f"{_PERCENT}th percentile of the response time", curve.first_slow),
        )
        if bend is not None
    ]


def _curve(
    name: str, x: str, members: list[Configuration], trials: list[TrialResult], in_flight: bool
) -> Curve:
    members = sorted(members, key=lambda member: float(member.x))
    loads = [float(member.x) for member in members]
    throughput, slow_ns = [], []
    closed = in_flight
    for member in members:
        used = [t.numbers for t in trials if t.used and t.content.configuration == member.name]
        # Only a closed loop has the law.
        closed &= all(any(law.name.startswith("interactive") for law in one.laws) for one in used)
        throughput.append([numbers.throughput_per_s for numbers in used])
        percentiles = [one.operations["all"].percentiles_ns for one in used if "all" in one.operations]
        slow_ns.append([float(found.get(_PERCENT, 0)) for found in percentiles])
    bend = crossing = first_slow = None
    try:
        bend = struct_of(knee(loads, throughput), Bend)
        crossing = struct_of(asymptotes_crossing(loads, throughput), Bend) if closed else None
        if all(all(values) for values in slow_ns):
            first_slow = struct_of(first_slow_load(loads, slow_ns), Bend)
    except LabError:
        # A trial without requests has no place on a logarithm; the gates have said so.
        pass
    return Curve(series=name, x=x, loads=loads, knee=bend, crossing=crossing, first_slow=first_slow)
