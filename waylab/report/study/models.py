"""The models of the published studies with their errors on our data, beside the same with their mistakes corrected."""

from collections.abc import Iterator, Sequence

from waylab.predict import LeftOutErrors, TwoClassMedians
from waylab.report.page.numbers import NONE, share_text

# Model by the name that the fits give it: heading, what it is, and what it leaves out.
_MODELS = {
    "mm1": (
        "M/M/1",
        "as in the studies: one server, as fast as the best throughput",
        "the limit of requests in service",
    ),
    "mmm": (
        "M/M/m",
        "as in the studies: a server for each worker or connection, with the mean time that a request holds one",
        "that this time grows with the load",
    ),
    "network": (
        "closed network",
        "as in the studies: workers with the holding time at the least load, then one server with the best throughput",
        "that parts share CPUs and links, so that they slow each other down",
    ),
    "chain": (
        "capped chain",
        "from this project: the holding time grows with the requests in service, up to a capacity",
        "how the parts of the system share the time",
    ),
    "usl": ("USL", "for comparison: the Universal Scalability Law", "all settings but the number of clients"),
    "gaussian-process": (
        "Gaussian process",
        "for comparison: a smooth function of the settings",
        "every part of the system",
    ),
    "nearest": ("nearest", "for comparison: the nearest measured configuration", "every effect of a setting"),
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


def two_class_section(medians: Sequence[tuple[str, TwoClassMedians]]) -> Iterator[str]:
    """Yield the table of A16's network, as in the study and corrected; with the name of the experiment."""
    if not medians:
        return
    yield from ["## The closed network of A16 with our measurements", ""]
    yield (
        "The model has a delay for the network, a station for the balancer, and two stations for each server: one for "
        "its readers and one for its writer. Their service times are the mean times of the stages. In the study, GETs "
        "and SETs are two fixed populations. With one population, each client draws its next operation. The writers of "
        "this proxy do not wait for a reply before they send the next SET. The network without a queue for SETs "
        "therefore has delays in place of the writers' stations. Each prediction takes the times from another "
        "configuration, which differs in servers, replicas or the share of SETs. A row has the medians of the absolute "
        "differences from the measurement."
    )
    yield ""
    yield "| experiment | predictions | network | throughput | GET, response | SET, response |"
    yield "|---|---:|---|---:|---:|---:|"
    for experiment, one in medians:
        cells = map(share_text, (one.throughput, one.get_response, one.set_response))
        yield f"| {experiment} | {one.configurations} | {one.network} | " + " | ".join(cells) + " |"
    yield ""


def _cell(one: LeftOutErrors | None) -> str:
    return NONE if one is None else f"{share_text(one.throughput)} / {share_text(one.response)}"
