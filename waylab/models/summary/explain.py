"""A result in words: the bottleneck, how close it is to saturation, and the effect of changes. At most ten lines."""

from waylab.models.elementary.queue import Queue
from waylab.models.features import features
from waylab.models.network import Network
from waylab.models.result import Result
from waylab.models.summary.findings import Bottleneck, Findings, ModelChange, Solver, find
from waylab.models.summary.queue import explain_queue
from waylab.models.summary.texts import change_text, number_text, percent_text, time_text

LINES_MAX = 10


def explain(result: Result | Queue, solver: Solver | None = None) -> str:
    """Describe a result in words, one or two sentences a line, at most ten lines.

    The bottleneck is the station with the highest load, or the pool with the highest share of busy slots. Its share of
    the response time follows from Little's law; the bound is 1 / Dmax at this mix of classes and the knee N* = (R(1) +
    Z) / Dmax (Denning and Buzen, The operational analysis of queueing network models, 1978). The effect of a change is
    that of the changed network, solved by the same method. A simulated result needs `solver` for the changed networks.

    Raises:
        ModelError: when the result was simulated and no `solver` is given.
    """
    if isinstance(result, Queue):
        return explain_queue(result)
    return "\n".join(sentences(result, find(result, solver)))


def sentences(result: Result, findings: Findings) -> list[str]:
    """Write the findings as sentences."""
    lines = [_bottleneck(result, findings) + _elsewhere(findings)]
    lines += _distance(result, findings)
    lines += [_change(change, findings, result.network) for change in findings.changes]
    if result.kind != "simulation":
        lines.append(_solved_by(result))
    lines += [_sentence(note) for note in result.notes]
    return lines[:LINES_MAX]


def _bottleneck(result: Result, findings: Findings) -> str:
    limit = findings.limit
    if limit.kind == "none":
        return "There is no bottleneck: no request ever waits for a server."
    if limit.kind == "pool":
        share = percent_text(limit.load)
        text = f"The bottleneck is the pool {limit.names[0]!r}: {share} of its slots are busy on average."
        if findings.slot_waiting_s is not None:
            text += f" A request waits {time_text(findings.slot_waiting_s)} for a slot."
        if findings.inside:
            busy = percent_text(findings.inside.load)
            text += f" Inside it {_names(findings.inside)} {_is(findings.inside)} busiest, {busy}."
        return text
    each = " each" if len(limit.names) > 1 else ""
    busy = "of its highest speed used" if result.network.station(limit.names[0]).rates else "busy"
    head = "The bottlenecks are" if len(limit.names) > 1 else "The bottleneck is"
    text = f"{head} {_names(limit)}: {percent_text(limit.load)} {busy}{each}."
    waiting = findings.waiting_share
    if findings.time_share is not None:
        text += f" Requests spend {percent_text(findings.time_share)} of their response time there"
        text += _by_class(findings)
        if waiting is not None:
            text += f", {percent_text(waiting)} of it waiting and {percent_text(1 - waiting)} in service"
        return text + "."
    if waiting is not None:
        text += f" A leg there waits for {percent_text(waiting)} of its time and is served for the rest."
    return text


def _elsewhere(findings: Findings) -> str:
    """The station with the longest part of the response time, unless it is the bottleneck."""
    longest = findings.longest
    if not longest or set(longest[0]) & set(findings.limit.names):
        return ""
    return f" The longest part of the response time, {percent_text(longest[1])}, is spent at {_listed(longest[0])}."


def _by_class(findings: Findings) -> str:
    """The share by class, if the shares differ and there are at most four."""
    shares = {name: percent_text(share) for name, share in findings.class_time_shares.items() if share > 0}
    if not 0 < len(shares) <= 4 or len(findings.class_time_shares) < 2:
        return ""
    if len(shares) == len(findings.class_time_shares) and len(set(shares.values())) == 1:
        return ""
    return " (" + ", ".join(f"{name} {share}" for name, share in shares.items()) + ")"


def _is(limit: Bottleneck) -> str:
    return "is" if len(limit.names) == 1 else "are"


def _names(limit: Bottleneck) -> str:
    return _listed(limit.names)


def _listed(names: tuple[str, ...]) -> str:
    others = len(names) - 1
    if not others:
        return repr(names[0])
    return f"{names[0]!r} and {names[1]!r}" if others == 1 else f"{names[0]!r} and {others} others like it"


def _distance(result: Result, findings: Findings) -> list[str]:
    """How close the load is to the bound and to the knee."""
    lines = []
    bound, reached = findings.bound_per_s, result.throughput_total_per_s
    network = result.network
    if bound is not None and network.has_closed:
        mix = " at this mix of classes" if len(network.classes) > 1 else ""
        text = f"It allows at most {number_text(bound)} requests/s{mix}; the throughput is {number_text(reached)}."
        knee = findings.knee_clients
        if knee is not None:
            text += f" The knee lies at {number_text(knee)} clients, and there are {network.population:,}: "
            text += _beside_knee(network.population / knee, reached / bound)
        lines.append(text)
    if findings.arrivals_growth is not None:
        growth = findings.arrivals_growth - 1
        total = sum(part.arrivals_per_s for part in network.classes) * findings.arrivals_growth
        together = " of all classes" if len(network.classes) > 1 else ""
        lines.append(
            f"The load can grow by {percent_text(growth)}, to {number_text(total)} requests/s{together}, before "
            f"{_names(findings.limit)} saturates."
        )
    return lines


def _beside_knee(ratio: float, reached: float) -> str:
    if ratio < 0.9:
        return "below it, so that more clients bring more throughput."
    if ratio <= 1.1:
        return "at the knee, where queues begin to grow."
    if reached < 0.97:
        return "above it, so that more clients bring little more throughput and longer waits."
    return "above it, so that more clients only wait longer."


def _change(change: ModelChange, findings: Findings, network: Network) -> str:
    what = _what(change, findings, network)
    if change.result is None or change.limit is None:
        if change.note == "unstable":
            return f"{what}: no steady state, the queue would grow without limit."
        return f"{what}: not known, because {change.note}."
    parts = []
    if network.has_closed:
        parts.append(change_text(change.throughput_change, "throughput", "more", "less"))
    parts.append(change_text(change.response_change, "response time", "longer", "shorter"))
    text = f"{what}: {', '.join(parts)}"
    if change.limit.kind != "none":
        busy = percent_text(change.limit.load)
        unit = "of its slots busy" if change.limit.kind == "pool" else "busy"
        stays = set(change.limit.names) & set(findings.limit.names)
        text += "; " + (
            f"{_stays(change.limit)}, {busy} {unit}"
            if stays
            else f"then {_becomes(change.limit)} {_names(change.limit)}, {busy} {unit}"
        )
    return text + (f" ({change.note})." if change.note else ".")


def _stays(limit: Bottleneck) -> str:
    return "it stays the bottleneck" if len(limit.names) == 1 else "they stay the bottlenecks"


def _becomes(limit: Bottleneck) -> str:
    return "the bottleneck is" if len(limit.names) == 1 else "the bottlenecks are"


def _what(change: ModelChange, findings: Findings, network: Network) -> str:
    there = "there" if len(findings.limit.names) == 1 else "at each of them"
    if change.kind == "slots":
        return f"Twice the slots ({change.value:.0f})"
    if change.kind == "servers":
        return f"Twice the servers {there} ({change.value:.0f})"
    if change.kind == "service":
        if findings.limit.kind == "pool":
            return f"Half the service time at {_listed(change.inside)}"
        return f"Half the service time {there}"
    size = f"{100 * abs(change.value - 1):.0f} %" if not network.has_closed else _clients(change, network)
    return f"{size} {change.kind} arrivals" if not network.has_closed else size


def _clients(change: ModelChange, network: Network) -> str:
    step = abs(change.value / network.population - 1)
    return f"{100 * step:.0f} % {change.kind} clients ({change.value:.0f})"


def _solved_by(result: Result) -> str:
    """The method, and its assumptions about this network."""
    kind = {"exact": "exact", "approximation": "an approximation"}
    text = f"Solved by {result.method}, {kind.get(result.kind, result.kind)}"
    found = features(result.network)
    taken = []
    if result.network.has_open and "general arrivals" not in found:
        taken.append("Poisson arrivals")
    if "general service" not in found and any(
        not station.is_delay and station.discipline == "fcfs" for station in result.network.stations
    ):
        taken.append("exponential service where requests are served in order")
    taken.append("independent service times")
    return f"{text}; it assumes {', '.join(taken[:-1])}{' and ' if taken[:-1] else ''}{taken[-1]}."


def _sentence(note: str) -> str:
    """Begin with a capital and end with a full stop."""
    return note[:1].upper() + note[1:].rstrip(".") + "."
