"""The models of the published studies with their errors on our data, beside the same with their mistakes corrected."""

from collections.abc import Iterator, Sequence

from waylab.predict import LeftOutErrors, TwoClassPrediction
from waylab.report.page.numbers import NONE, share_text

# Model by the name that the fits give it: heading, what it is, and what it leaves out.
_MODELS = {
    "mm1": (
        "M/M/1",
        "the studies: one server, as fast as the best throughput",
        "any limit of requests in service",
    ),
    "mmm": (
        "M/M/m",
        "the studies: a server for each worker or connection, with the mean time that a request holds one",
        "that this time grows with the load",
    ),
    "network": (
        "closed network",
        "the studies: workers with the holding time at the least load, then one server with the best throughput",
        "that parts share CPUs and links, so that they slow each other down",
    ),
    "chain": (
        "capped chain",
        "this project: the holding time grows with the requests in service, up to a capacity",
        "what happens inside the capacity",
    ),
    "usl": ("USL", "for comparison: the Universal Scalability Law", "everything but the number of clients"),
    "gaussian-process": (
        "Gaussian process",
        "for comparison: a smooth function of the settings",
        "the system",
    ),
    "nearest": ("nearest", "for comparison: the nearest measured configuration", "everything"),
}


def models_section(errors: Sequence[tuple[str, LeftOutErrors]]) -> Iterator[str]:
    """Yield the table of held-out errors; `errors` has the name of the experiment with each."""
    found = {(experiment, one.model): one for experiment, one in errors}
    names = [name for name in _MODELS if any(one.model == name for _, one in errors)]
    if not names:
        return
    yield from ["## Models on configurations that they have not seen", ""]
    yield (
        "Each configuration is predicted by models that learned from all other configurations of its experiment. "
        "A cell has the median errors of the throughput and of the mean response time."
    )
    yield ""
    yield "| experiment | configurations | " + " | ".join(_MODELS[name][0] for name in names) + " |"
    yield "|---|---:" + "|---:" * len(names) + "|"
    for experiment in dict.fromkeys(experiment for experiment, _ in errors):
        cells = [_cell(found.get((experiment, name))) for name in names]
        most = max(one.configurations for other, one in errors if other == experiment)
        yield f"| {experiment} | {most} | " + " | ".join(cells) + " |"
    yield ""
    yield from ["| model | what it is | what it leaves out |", "|---|---|---|"]
    yield from (f"| {' | '.join(_MODELS[name])} |" for name in names)
    yield ""


def two_class_section(predictions: Sequence[tuple[str, TwoClassPrediction]]) -> Iterator[str]:
    """Yield the table of A16's network, as in the study and with drawn operations; with the name of the experiment."""
    if not predictions:
        return
    yield from ["## The closed network of A16 with our measurements", ""]
    yield (
        "The model has a delay for the network, a balancer, and for each server a station for its readers and one "
        "for its writer, with the mean times of the stages. In the study, GETs and SETs are two fixed populations. "
        "With one population, each client draws its next operation. A cell has the differences of both from the "
        "measurement: two populations / one population. A configuration with its own times is a description, and no "
        "prediction."
    )
    yield ""
    yield "| experiment | times of | configuration | throughput | GET, response | SET, response |"
    yield "|---|---|---|---:|---:|---:|"
    for experiment, one in predictions:
        source = "its own" if one.learned_from == one.predicted else one.learned_from
        cells = (
            f"{100 * getattr(one.fixed, name):+.0f} % / {100 * getattr(one.drawn, name):+.0f} %"
            for name in ("throughput", "get_response", "set_response")
        )
        yield f"| {experiment} | {source} | {one.predicted} | " + " | ".join(cells) + " |"
    yield ""


def _cell(one: LeftOutErrors | None) -> str:
    return NONE if one is None else f"{share_text(one.throughput)} / {share_text(one.response)}"
