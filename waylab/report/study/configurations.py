"""All configurations of an experiment of a study: both views of the response time, percentiles, gamma fits, bounds."""

from collections.abc import Iterator, Sequence

from waylab.predict import Bound, ResponseLaw
from waylab.report.page.content import Content
from waylab.report.page.numbers import NONE, rate_text, share_text, signed_percent_text, time_text
from waylab.runfolder.analysis import Configuration

_PERCENTS = ("50", "90", "95", "99")
_HEADINGS = (
    "configuration",
    "throughput, 1/s",
    "mean response",
    "in the {middle}",
    "difference",
    *(f"p{percent}" for percent in _PERCENTS),
    "gamma shape",
    "gamma distance",
)
_BOUNDS = (
    "configuration",
    "most used",
    "utilisation",
    "throughput, 1/s",
    "at most",
    "mean response",
    "at least",
)


def configurations_page(
    content: Content, bounds: dict[str, Bound], figures: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield the lines of the page of an experiment; `figures` are names and paths."""
    scale = content.run.plan[0].time_scale if content.run.plan else 1.0
    yield from [f"# {content.run.name}: all configurations", "", _text(content.spec.question), ""]
    if scale != 1:
        yield from [
            f"Times and rates are those of the described hosts; one second of the study took {scale:g} seconds here. "
            "The figures have the times and rates of this machine.",
            "",
        ]
    yield from ["## Response times", ""]
    middle = content.middle
    yield from _table(
        [heading.format(middle=middle) for heading in _HEADINGS],
        [_responses(content, one, scale) for one in content.configurations],
    )
    yield (
        f"“In the {middle}” is the mean time from the receipt of a request to its reply, over the requests that both "
        "sides recorded. The difference to the mean response is the time in the network and waiting for a CPU. "
        "Percentiles are of all requests of all trials. The distance of the gamma distribution is the largest "
        "difference of the distribution functions."
    )
    yield ""
    if bounds:
        yield from ["## Bottlenecks", ""]
        yield from _table(
            _BOUNDS,
            [
                _limits(content, one, bounds[one.name], scale)
                for one in content.configurations
                if one.name in bounds
            ],
        )
        yield (
            "A worker is busy while its request waits for a link or a CPU. Therefore a link or a CPU is shown if its "
            "utilisation is at most 3 percentage points below that of the workers. "
            "The throughput can be at most the measured one, divided by the utilisation of the part that is used "
            "most. With N clients and think time Z, the mean response time is at least N, divided by that throughput, "
            "minus Z."
        )
        yield ""
    for title, path in figures:
        yield from [f"![{title}]({path})", ""]


def law_sentence(law: ResponseLaw | None) -> str:
    """Return the error of the interactive response time law in one sentence; empty without a closed loop."""
    if law is None:
        return ""
    mean, largest = signed_percent_text(law.mean), signed_percent_text(law.largest)
    plural = "s" if law.trials != 1 else ""
    return (
        "Response time by the interactive response time law (N/X − Z), compared with the measured one in "
        f"{law.trials} trial{plural}: mean difference {mean}, largest {largest}."
    )


def _responses(content: Content, one: Configuration, scale: float) -> list[str]:
    def scaled(value_ns: float | None) -> str:
        return time_text(None if value_ns is None else value_ns / scale)

    everything, view = one.operations.get("all"), one.proxy_view
    shape = one.shapes.get("all") or next((found for found in one.shapes.values() if found), None)
    gamma = shape.gamma if shape else None
    rate = one.throughput_per_s.mean
    return [
        content.label(one.name),
        rate_text(None if rate is None else rate * scale),
        scaled(everything.response_mean_ns.mean if everything else None),
        scaled(view.proxy_mean_ns.mean if view else None),
        scaled(view.difference_mean_ns.mean if view else None),
        *(scaled(everything.percentiles_ns.get(percent) if everything else None) for percent in _PERCENTS),
        f"{gamma.shape:.2f}" if gamma else NONE,
        f"{gamma.distance:.3f}" if gamma else NONE,
    ]


def _limits(content: Content, one: Configuration, bound: Bound, scale: float) -> list[str]:
    everything = one.operations.get("all")
    response_ns = everything.response_mean_ns.mean if everything else None
    rate = one.throughput_per_s.mean
    return [
        content.label(one.name),
        bound.part,
        share_text(bound.utilisation),
        rate_text(None if rate is None else rate * scale),
        rate_text(bound.throughput_per_s),
        time_text(None if response_ns is None else response_ns / scale),
        time_text(None if bound.response_s is None else 1e9 * bound.response_s),
    ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(headings) + " |"
    yield "|---" + "|---:" * (len(headings) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(map(_text, row)) + " |"
    yield ""


def _text(text: str) -> str:
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return text
