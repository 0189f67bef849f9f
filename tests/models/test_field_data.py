"""Held-out prediction on real data: one pool size is fitted, the other pool sizes are predicted.

The data come from another project (dcetin/eth-asl-fall18, experiment tpfw: writes to three replicas, two middlewares,
8 to 64 workers each). They are not in this repository; without them the tests are skipped.
"""

import csv
import json
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from pages import check_page, table

from waylab.models import JobClass, MMm, Network, Service, Station, UnstableError, solve

DATA = Path(__file__).parents[3] / "shared/data/field/aggregates.csv"
FITTED_WORKERS = 128


def configurations():
    """Means over repetitions by (workers, clients): throughput, response, holding time of a worker; seconds."""
    groups = defaultdict(list)
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["repository"] == "dcetin/eth-asl-fall18" and row["experiment"] == "tpfw":
                workers = int(row["workers_per_middleware"]) * int(row["middlewares"])
                groups[workers, int(row["clients_total"])].append(
                    (
                        float(row["throughput_middleware_per_s"]),
                        float(row["response_middleware_ms_mean"]) / 1e3,
                        float(row["worker_ms_mean"]) / 1e3,
                    )
                )
    return {key: np.mean(rows, axis=0) for key, rows in groups.items()}


def capped_chain(fitted, workers, clients):
    """A closed chain whose rate is n / w(n) up to the pool size; w and the rest of the cycle from the fitted pool."""
    known = sorted(fitted.items())
    busy = [throughput * held_s for _, (throughput, _, held_s) in known]
    held_s = [held_s for _, (_, _, held_s) in known]
    outside_s = [count / throughput - response_s for count, (throughput, response_s, _) in known]
    rates = [n / np.interp(n, busy, held_s) for n in range(1, min(workers, clients) + 1)]
    think_s = float(np.interp(clients, [count for count, _ in known], outside_s))
    return solve(
        Network(
            (JobClass("set", clients, Service(think_s)),),
            (Station("pool", {"set": 1.0}, rates=tuple(rates)),),
            {"set": {"pool": 1}},
        )
    )


@pytest.fixture(scope="module")
def errors():
    """Relative errors of throughput and response time over all held-out configurations, by model."""
    if not DATA.is_file():
        pytest.skip(f"the field data are not beside the project: {DATA}")
    measured = configurations()
    fitted = {clients: row for (workers, clients), row in measured.items() if workers == FITTED_WORKERS}
    found = defaultdict(list)
    for (workers, clients), (throughput, response_s, _) in measured.items():
        if workers == FITTED_WORKERS:
            continue
        result = capped_chain(fitted, workers, clients)
        found["capped chain, throughput"].append(abs(result.throughput_total_per_s / throughput - 1))
        found["capped chain, response"].append(abs(result.response_mean_s / response_s - 1))
        try:
            nearest = min(fitted, key=lambda known, clients=clients: abs(known - clients))
            queue = MMm(throughput, 1 / fitted[nearest][2], workers)
            found["M/M/m, response"].append(abs(queue.response_mean_s / response_s - 1))
        except UnstableError:
            found["M/M/m, unstable"].append(1.0)
    return found


def test_the_page_shows_these_errors(errors):
    rows = []
    for model, metrics in (("capped chain with w(n)", ("throughput", "response")), ("M/M/m", ("response",))):
        for metric in metrics:
            found = errors[f"{model.split(' with')[0]}, {metric}"]
            unstable = len(errors[f"{model}, unstable"])
            note = f"{len(found)} configurations" + (f", {unstable} more are unstable" if unstable else "")
            shares = (statistics.median(found), max(found))
            rows.append((f"{model}, {metric}", *(f"{100 * share:.1f} %" for share in shares), note))
    check_page({"field": table(("model", "median error", "largest error", "of"), rows)})


def test_a_capped_chain_predicts_other_pool_sizes(errors):
    assert len(errors["capped chain, throughput"]) == 20
    assert statistics.median(errors["capped chain, throughput"]) < 0.03
    assert max(errors["capped chain, throughput"]) < 0.08
    assert statistics.median(errors["capped chain, response"]) < 0.05


def test_the_picture_of_the_readme_shows_these_data():
    if not DATA.is_file():
        pytest.skip(f"the field data are not beside the project: {DATA}")
    shown = json.loads((Path(__file__).parents[2] / "docs/images/prediction.json").read_text())
    measured = configurations()
    fitted = {clients: row for (workers, clients), row in measured.items() if workers == FITTED_WORKERS}
    assert sum(map(len, shown["measured"].values())) == len(measured)
    for name, points in shown["measured"].items():
        workers = 2 * int(name.split()[0])
        assert points == [[clients, pytest.approx(measured[workers, clients][0])] for clients, _ in points]
        for clients, rate in shown["predicted"].get(name, []):
            found = capped_chain(fitted, workers, clients).throughput_total_per_s
            assert rate == pytest.approx(found, rel=1e-4)


def test_a_frozen_service_time_does_not(errors):
    """M/M/m calls most of the held-out pools unstable, though they ran; the others have large errors."""
    assert len(errors["M/M/m, unstable"]) > 10
    assert max(errors["M/M/m, response"]) > 0.25
