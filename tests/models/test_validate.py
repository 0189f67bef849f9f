"""`waylab validate`: held-out cells of synthetic tables whose truth is known, bad tables, and the field data."""

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tables

from waylab.cli import main
from waylab.fit.table.chain import ChainModel, FittedChain
from waylab.fit.table.effects import Effects
from waylab.fit.table.interface import CellPrediction, RefusedFitError
from waylab.fit.table.left_over import LeftOver
from waylab.fit.table.observations import cells_of, read_observations
from waylab.fit.table.percentile import fit_percentile_excess
from waylab.predict.table.intervals import half_width
from waylab.predict.table.judge import _half_width
from waylab.predict.table.splits import (
    TO_FOUR_TIMES,
    TO_TWICE,
    anchor_cells,
    hold_outs,
    inner_hold_outs,
)

FIELD = Path(__file__).parents[3] / "shared/data/field/aggregates.csv"
THREE = ("measured_per_s", "predicted_per_s", "interval_per_s")


def cells_from(path, rows):
    cells, refused = cells_of(read_observations(tables.write(path / "table.csv", rows)))
    assert not refused
    return cells


def validated(capsys, path, split):
    assert main(["validate", str(path), "--split", split, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("effects", "grain"), [(False, 1), (False, 4), (True, 1), (True, 4)])
def test_the_derivatives_of_the_chain_are_right(tmp_path, effects, grain):
    rows = tables.trials((8, 32), (4, 32), repetitions=1)
    rows += tables.trials((8,), (4, 32), repetitions=1, servers=2)
    cells = cells_from(tmp_path, rows)
    among = Effects(tuple(one.settings for one in cells)) if effects else Effects()
    fitted = FittedChain(ChainModel(effects=among), cells, grain)
    values = fitted._values + np.random.default_rng(1).normal(0, 0.2, len(fitted._values))
    _, slopes = fitted._errors(values)
    step = 1e-6
    for place in range(len(values)):
        moved = step * (np.arange(len(values)) == place)
        expected = (fitted._errors(values + moved)[0] - fitted._errors(values - moved)[0]) / (2 * step)
        assert slopes[:, place] == pytest.approx(expected, abs=1e-4)


def test_the_chain_predicts_pools_and_clients_of_a_known_chain(tmp_path):
    cells = cells_from(tmp_path, tables.trials(noise=0.0, repetitions=1))
    known = [one for one in cells if one.settings.workers != 16 and one.settings.clients <= 64]
    fitted = ChainModel().fit(known)
    for one in cells:
        found = fitted.predict(one.settings)
        limit = 0.02 if one.settings.workers != 16 and one.settings.clients <= 64 else 0.06
        assert found.throughput_per_s == pytest.approx(one.throughput_per_s, rel=limit), one.settings
        assert found.response_s == pytest.approx(one.settings.clients / one.throughput_per_s, rel=limit)
    assert fitted.parameters["w(1)_s"] == pytest.approx(1.5e-3, rel=0.15)
    assert fitted.parameters["z(1)_s"] == pytest.approx(tables.THINK_S, rel=0.15)
    small = next(one.settings for one in cells if (one.settings.workers, one.settings.clients) == (8, 128))
    assert fitted.predict(small).bottleneck == "workers"


def without_fluctuations(workers, clients):
    """A row of a system whose requests never meet by chance: a link limits the rate, with a sharp knee."""
    rate = min(clients / (tables.THINK_S + 1e-3), 9000)
    inside_s = clients / rate - tables.THINK_S
    row = tables.trial(workers, clients)
    row["throughput_clients_per_s"] = row["throughput_middleware_per_s"] = rate
    row["response_clients_ms_mean"] = 1e3 * clients / rate
    row["response_middleware_ms_mean"] = 1e3 * inside_s
    row["response_middleware_ms_p95"] = row["worker_ms_mean"] = ""
    return row


def test_a_chain_whose_requests_hardly_fluctuate_has_a_sharp_knee(tmp_path):
    pools, counts = (32, 48, 64), (6, 12, 24, 30, 48, 96)
    sharp = cells_from(tmp_path, [without_fluctuations(*at) for at in product(pools, counts)])
    fitted = ChainModel().fit([one for one in sharp if one.settings.workers != 48])
    errors = [
        abs(fitted.predict(one.settings).throughput_per_s / one.throughput_per_s - 1)
        for one in sharp
        if one.settings.workers == 48
    ]
    assert max(errors) < 0.03
    assert fitted.parameters["variability"] == 0.25
    exponential = cells_from(tmp_path, tables.trials(noise=0.0, repetitions=1))
    assert ChainModel().fit(exponential).parameters["variability"] == 1


def test_what_a_chain_does_not_explain_is_carried_to_the_cells_nearby(tmp_path):
    rows = tables.trials(noise=0.0, repetitions=1)
    for row in rows:
        if row["clients_total"] == 32:
            for name, factor in (("throughput_clients_per_s", 0.9), ("response_clients_ms_mean", 1 / 0.9)):
                row[name] *= factor
    cells = cells_from(tmp_path, rows)
    fitted = ChainModel().fit([one for one in cells if one.settings.workers != 16])
    found = {
        one.settings.clients: fitted.predict(one.settings).throughput_per_s / one.throughput_per_s
        for one in cells
        if one.settings.workers == 16
    }
    assert found[32] == pytest.approx(1, abs=0.03)
    assert found[128] == pytest.approx(1, abs=0.05)


def test_errors_are_carried_within_a_deployment_only(tmp_path):
    cells = cells_from(tmp_path, tables.trials((8,), (4, 8, 128), repetitions=1))
    near, same, far = (one.settings for one in cells)
    left_over = LeftOver([(near, {"throughput": 0.1})])
    assert left_over.ratio("throughput", near) == pytest.approx(math.exp(0.1 / 1.2))
    assert 1 < left_over.ratio("throughput", far) < left_over.ratio("throughput", same) < math.exp(0.1 / 1.2)
    assert left_over.ratio("throughput", replace(near, servers=2)) == 1
    assert left_over.ratio("inside", near) == 1


@pytest.mark.parametrize("counts", [(4, 8, 16, 32, 64, 128, 256), (2, 8, 16, 24, 32, 64, 96, 128, 192, 256)])
def test_without_a_middleware_a_saturated_server_stays_saturated(tmp_path, counts):
    rows = tables.trials((512,), counts, noise=0.0, repetitions=1)
    for row in rows:
        row["workers_per_middleware"] = row["middlewares"] = ""
    cells = cells_from(tmp_path, rows)
    fitted = ChainModel().fit([one for one in cells if one.settings.clients <= 64])
    for one in cells:
        limit = 0.03 if one.settings.clients <= 64 else 0.04
        found = fitted.predict(one.settings)
        assert found.throughput_per_s == pytest.approx(one.throughput_per_s, rel=limit), one.settings
        assert found.inside_s is None


def test_the_chain_refuses_what_it_cannot_learn(tmp_path):
    cells = cells_from(tmp_path, tables.trials((8, 16, 32), (16,), repetitions=1))
    with pytest.raises(RefusedFitError, match="measure another number of clients"):
        ChainModel().fit(cells)


@pytest.mark.parametrize("split", ["pools", "clients"])
def test_the_choice_and_its_intervals_hold_on_a_known_chain(tmp_path, capsys, split):
    rows = tables.trials((8, 16, 32, 64), (4, 16, 32, 64, 128), noise=0.015)
    path = tables.write(tmp_path / "table.csv", rows)
    found = validated(capsys, path, split)
    chosen = [one for one in found if one["model"] == "chosen"]
    errors = [one["throughput_predicted_per_s"] / one["throughput_measured_per_s"] - 1 for one in chosen]
    assert np.median(np.abs(errors)) < {"pools": 0.03, "clients": 0.06}[split]
    inside = [
        one["throughput_interval_per_s"][0]
        <= one["throughput_measured_per_s"]
        <= one["throughput_interval_per_s"][1]
        for one in chosen
    ]
    assert np.mean(inside) >= 0.75
    worst = [
        one["throughput_predicted_per_s"] / one["throughput_measured_per_s"] - 1
        for one in found
        if one["model"] == "nearest"
    ]
    assert np.median(np.abs(errors)) < np.median(np.abs(worst))


def test_an_object_has_the_promised_fields(tmp_path, capsys):
    path = tables.write(tmp_path / "table.csv", tables.trials((8, 16, 32), (4, 16, 64), repetitions=1))
    found = validated(capsys, path, "pools")
    assert {one["model"] for one in found} == {
        "chosen",
        "chain",
        "chain-free",
        "nearest",
        "usl",
        "gaussian-process",
        "mm1",
        "mmm",
        "network",
    }
    cells = {json.dumps(one["settings"]) for one in found}
    assert len(cells) == 9
    assert len(found) == 9 * 9
    one = next(one for one in found if one["model"] == "chosen" and one["held_out"] == "extrapolation")
    assert one["dataset"] == "made" and one["experiment"] == "servers1" and one["refused"] is None
    for name in THREE:
        assert one[f"throughput_{name}"] is not None
    for quantity in ("response_mean", "response_p95"):
        for name in THREE:
            assert one[f"{quantity}_{name.removesuffix('_per_s')}_s"] is not None
    # The same table gives the same answer.
    assert validated(capsys, path, "pools") == found
    low, high = one["throughput_interval_per_s"]
    assert low < one["throughput_predicted_per_s"] < high
    assert any("workers" in text for text in one["extrapolates"])
    assert one["settings"]["clients_total"] in (4, 16, 64)
    # Without --json: a table of errors with the coverage of all intervals beside it.
    assert main(["validate", str(path), "--split", "pools"]) == 0
    shown = capsys.readouterr().out
    assert "in: X, R, p95" in shown
    assert re.search(r"^ ?chosen .* \d+, \d+, \d+ %\s*$", shown, re.M)
    assert re.search(r"^ ?gaussian-process ", shown, re.M)


def test_servers_and_levels_are_predicted_blind_and_with_anchors(tmp_path, capsys):
    rows = tables.trials((8, 32), (4, 32, 128), repetitions=1)
    rows += tables.trials((8, 32), (4, 32, 128), repetitions=1, servers=2, seed=2)
    path = tables.write(tmp_path / "table.csv", rows)
    found = [one for one in validated(capsys, path, "servers") if one["model"] == "chosen"]
    assert {one["held_out"] for one in found} == {"blind", "1 anchor", "2 anchors"}
    assert all(one["throughput_predicted_per_s"] for one in found)
    rows = tables.trials((8, 32), (4, 32, 128), repetitions=1)
    rows += tables.trials((8, 32), (4, 32, 128), repetitions=1, middlewares=2, seed=2)
    path = tables.write(tmp_path / "table.csv", rows)
    found = [one for one in validated(capsys, path, "levels") if one["model"] == "chosen"]
    assert {one["held_out"] for one in found} == {"middlewares"}


def test_columns_and_cells_may_be_missing(tmp_path, capsys):
    heading = [name for name in tables.HEADING if "clients_ms" not in name and "p95" not in name]
    heading.remove("throughput_clients_per_s")
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=1)
    for row in rows[:4]:
        row["worker_ms_mean"] = row["queue_ms_mean"] = ""
    found = validated(capsys, tables.write(tmp_path / "table.csv", rows, heading), "pools")
    chosen = [one for one in found if one["model"] == "chosen"]
    assert all(one["view"] == "middlewares" and one["response_mean_predicted_s"] for one in chosen)
    assert "response_p95_measured_s" not in chosen[0]


def test_flagged_rows_are_neither_learned_nor_judged(tmp_path, capsys):
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=1)
    rows[0]["note"] = "do not use: copied"
    rows[4]["response_middleware_ms_mean"] = 3 * float(rows[4]["response_middleware_ms_mean"]) + 20
    rows[8]["throughput_clients_per_s"] = rows[8]["throughput_middleware_per_s"] = ""
    rows.append(rows[7] | {"throughput_clients_per_s": 2 * float(rows[7]["throughput_clients_per_s"])})
    rows[7]["sharded"], rows[-1]["sharded"] = "no", "False"
    found = validated(capsys, tables.write(tmp_path / "table.csv", rows), "pools")
    reasons = sorted(one["refused"] for one in found if one["held_out"] == "unusable")
    assert len(reasons) == 4
    assert "contradict each other: repetition 1" in " ".join(reasons)
    assert "do not use" in " ".join(reasons) and "interactive law" in " ".join(reasons)
    assert "not in the table" in " ".join(reasons)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("throughput_clients_per_s", "-5", "its throughput_clients_per_s is -5"),
        ("throughput_clients_per_s", "0", "its throughput_clients_per_s is 0"),
        ("response_clients_ms_mean", "-1e3", "its response_clients_ms_mean is -1000"),
        ("clients_total", "1e9", "at most 20000 clients are modelled"),
        ("note", "Do Not Use", "its note says"),
    ],
)
def test_an_impossible_row_is_refused_alone(tmp_path, name, value, expected):
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=1)
    rows[4][name] = value
    found = read_observations(tables.write(tmp_path / "table.csv", rows))
    assert [one.line for one in found if one.refused] == [6]
    assert expected in found[4].refused


def test_headings_with_a_byte_order_mark_and_words_for_truth_are_read(tmp_path):
    rows = tables.trials((8,), (4, 16), repetitions=1, sharded="True", multiget_keys=6)
    path = tables.write(tmp_path / "table.csv", rows, tables.HEADING[1:])
    path.write_bytes("\ufeff".encode() + path.read_bytes())
    assert [one.settings.sharded for one in read_observations(path)] == [True, True]


def test_too_few_levels_are_refused_cell_by_cell(tmp_path, capsys):
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=1)
    rows += tables.trials((8, 32), (4, 64), repetitions=1, experiment="two pools")
    found = validated(capsys, tables.write(tmp_path / "table.csv", rows), "pools")
    refused = [one for one in found if one["experiment"] == "two pools"]
    assert len(refused) == 4
    assert all("only 2 pool sizes" in one["refused"] for one in refused)
    assert all(one["throughput_predicted_per_s"] is None for one in refused)


@pytest.mark.parametrize(
    ("content", "split", "expected"),
    [
        (None, "pools", "there is no such file"),
        ("", "pools", "has no rows"),
        ("a,b\n1,2,3\n", "pools", "3 columns"),
        ("a,b\n1,2\n", "pools", "has no column experiment"),
        ("experiment;clients_total\na;2\n", "pools", "separate the columns by commas"),
        (
            "experiment,clients_total,throughput_clients_per_s,writes_share\na,2,9,37\n",
            "pools",
            "writes_share is 37; give a share between 0 and 1",
        ),
        ("experiment,clients_total\na,2\n", "pools", "has no column throughput_clients_per_s"),
        ("experiment,clients_total,throughput_clients_per_s\na,no,1\n", "pools", "clients_total is 'no'"),
        ("experiment,clients_total,throughput_clients_per_s\na,2.5,1\n", "pools", "give a whole number"),
        ("experiment,clients_total,throughput_clients_per_s\na,,1\n", "pools", "give a positive integer"),
        ("experiment,clients_total,throughput_clients_per_s\na,2,1e999\n", "pools", "give a number"),
        ("experiment,clients_total,throughput_clients_per_s\na,2,\n", "pools", "no usable row"),
        ("experiment,clients_total,throughput_clients_per_s\na,2,10\n", "pools", "nothing to hold out"),
        (
            "experiment,clients_total,throughput_clients_per_s\na,2,10\n",
            "clients",
            "only 1 numbers of clients",
        ),
        ("experiment,clients_total,throughput_clients_per_s\na,2,10\n", "servers", "same number of servers"),
        ("experiment,clients_total,throughput_clients_per_s\na,2,10\n", "levels", "nothing to hold out"),
    ],
)
def test_bad_tables_get_one_line(tmp_path, capsys, content, split, expected):
    path = tmp_path / "table.csv"
    if content is not None:
        path.write_text(content)
    assert main(["validate", str(path), "--split", split, "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert expected in err and err.count("\n") == 1 and err.startswith("waylab: ")


def test_no_calibration_cell_is_a_target(tmp_path):
    rows = tables.trials((8, 16, 32, 64), (4, 8, 16, 64, 256), repetitions=1)
    rows += tables.trials((8, 16, 32, 64), (4, 8, 16, 64, 256), repetitions=1, servers=3)
    cells = cells_from(tmp_path, rows)
    for split in ("pools", "clients", "servers"):
        found = hold_outs(cells, split)
        assert found
        for outer in found:
            assert not set(outer.calibration) & set(outer.targets)
            known = set(outer.calibration) | set(outer.known)
            for inner in inner_hold_outs(outer, split):
                assert not set(inner.calibration) & set(inner.targets)
                assert (set(inner.calibration) | set(inner.targets)) <= known
            if split == "clients":
                most = max(one.settings.clients for one in outer.calibration)
                assert all(most < one.settings.clients <= 4 * most for one in outer.targets)


def test_intervals_widen_with_errors_and_never_below_the_noise():
    assert half_width([0.01] * 50, 0.0) < half_width([0.1] * 50, 0.0)
    assert half_width([0.001] * 50, 0.05) == pytest.approx(1.645 * 0.05)
    errors = np.random.default_rng(1).standard_normal(400)
    assert half_width(errors, 0.0) == pytest.approx(1.645, rel=0.15)


def test_without_inner_errors_four_times_the_clients_have_twice_the_interval():
    found = CellPrediction(100.0, 0.1)
    assert _half_width("throughput", found, [], TO_FOUR_TIMES, False) == 0.2
    assert _half_width("throughput", found, [], TO_TWICE, False) == 0.1


def test_the_chain_beats_the_queueing_models_on_field_data():
    if not FIELD.is_file():
        pytest.skip(f"the field data are not beside the project: {FIELD}")
    cells, _ = cells_of(
        [one for one in read_observations(FIELD) if one.settings.experiment in ("tpfw", "4_set_tps")]
    )
    errors = []
    for dataset in {one.mean.dataset for one in cells}:
        for outer in hold_outs([one for one in cells if one.mean.dataset == dataset], "pools"):
            if outer.part == "interpolation":
                fitted = ChainModel().fit(outer.calibration)
                errors += [
                    abs(fitted.predict(one.settings).throughput_per_s / one.throughput_per_s - 1)
                    for one in outer.targets
                ]
    assert len(errors) == 28
    assert np.median(errors) < 0.04
    assert np.quantile(errors, 0.9) < 0.1


def test_the_spread_of_a_layered_model_grows_away_from_its_measurements(tmp_path):
    rows = tables.trials((8, 32), (4, 32, 128), repetitions=1)
    rows += tables.trials((8, 32), (4, 32, 128), repetitions=1, servers=2, seed=2)
    cells = cells_from(tmp_path, rows)
    one_server = [one for one in cells if one.settings.servers == 1]
    anchor = next(
        one
        for one in cells
        if (one.settings.servers, one.settings.workers, one.settings.clients) == (2, 32, 128)
    )
    far = next(
        one
        for one in cells
        if (one.settings.servers, one.settings.workers, one.settings.clients) == (2, 8, 4)
    )
    layered = ChainModel(effects=Effects(tuple(one.settings for one in cells)))
    blind, anchored = layered.fit(one_server), layered.fit([*one_server, anchor])
    spreads = [fitted.predict(one.settings).spread for fitted in (blind, anchored) for one in (anchor, far)]
    assert spreads[2] < 0.5 * spreads[0]
    assert spreads[2] < 0.5 * spreads[3]
    # A single chain has no account of its own: its intervals come from held-out errors.
    assert ChainModel().fit(one_server).predict(far.settings).spread is None


def test_without_a_middleware_the_second_anchor_has_the_fewest_clients(tmp_path):
    rows = tables.trials((8,), (4, 16, 32, 64, 128), repetitions=1)
    for row in rows:
        row["workers_per_middleware"] = row["middlewares"] = ""
    cells = cells_from(tmp_path, rows)
    assert [one.settings.clients for one in anchor_cells(tuple(cells), 3)] == [128, 4, 32]


def test_the_95th_percentile_holds_behind_a_longer_queue(tmp_path):
    rows = tables.trials((8, 32), (4, 16, 64, 256), repetitions=1)
    for row in rows:
        mean_ms = float(row["response_middleware_ms_mean"])
        row["response_middleware_ms_p95"] = mean_ms + 2.4 * mean_ms**0.5
    # A percentile below the mean cannot be learned from, and changes nothing.
    rows[0]["response_middleware_ms_p95"] = 0.5 * float(rows[0]["response_middleware_ms_mean"])
    cells = cells_from(tmp_path, rows)
    found = fit_percentile_excess([one for one in cells if one.settings.clients < 256])
    assert found is not None
    for one in cells:
        if one.settings.clients == 256:
            assert found.p95_s(one.settings, one.mean.response_middleware_s) == pytest.approx(
                one.mean.response_p95_s, rel=0.02
            )


def test_trials_far_from_their_median_do_not_count_and_are_flagged(tmp_path, capsys):
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=3, noise=0.0)
    right = float(rows[0]["throughput_clients_per_s"])
    for name in ("throughput_clients_per_s", "throughput_middleware_per_s"):
        rows[0][name] = right / 10
    path = tables.write(tmp_path / "table.csv", rows)
    cells, _ = cells_of(read_observations(path))
    doubtful = [one for one in cells if one.flag]
    assert len(doubtful) == 1
    assert doubtful[0].throughput_per_s == pytest.approx(right)
    assert "2 of them count; repeat it" in doubtful[0].flag
    found = validated(capsys, path, "pools")
    assert {one["settings"]["clients_total"] for one in found if one["flag"]} == {rows[0]["clients_total"]}


@pytest.mark.parametrize("width", ["80", "200"])
def test_the_text_fits_and_shows_skill_residuals_and_failures(tmp_path, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    name = "https://example.org/a-very-long-name-of-a-data-set/that-fills-more-than-a-whole-line-of-eighty-columns"
    rows = tables.trials((8, 16, 32), (4, 16, 64), repetitions=1, repository=name)
    rows += tables.trials((8, 16, 32), (4, 16, 64), repetitions=1, repository=name, experiment="other")
    for row in rows[9:12]:
        # Nothing explains why this pool is three times as fast.
        for column in ("throughput_clients_per_s", "throughput_middleware_per_s"):
            row[column] = 3 * float(row[column])
        for column in ("response_clients_ms_mean", "response_middleware_ms_mean", "worker_ms_mean"):
            row[column] = float(row[column]) / 3
    assert main(["validate", str(tables.write(tmp_path / "t.csv", rows)), "--split", "pools"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= int(width)
    assert "gaussian-process" in out and "that of the best" in " ".join(out.split())
    # One table for each part, with all models in it.
    assert out.count(" in: X, R, p95") == 2
    assert "errors of X against each factor" in out and "4 to" not in out
    assert "where chosen fails" in out


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("split", ["pools", "clients", "levels"])
def test_more_workers_than_any_machine_has_cost_no_time(tmp_path, capsys, split):
    rows = tables.trials((8, 16, 32), (4, 16, 64, 128), repetitions=1)
    rows += tables.trials((8, 32), (4, 64), repetitions=1, servers=2)
    rows = [{**row, "workers_per_middleware": 10**9 + int(row["workers_per_middleware"])} for row in rows]
    assert main(["validate", str(tables.write(tmp_path / "table.csv", rows)), "--split", split]) in (0, 2)
    assert "nan" not in capsys.readouterr().out
