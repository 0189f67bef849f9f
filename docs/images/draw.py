"""Draws the pictures of the README from the data beside this file, each for a light and for a dark page.

    make pictures                          # draws demo-stage-times and prediction
    make pictures RUN=results/TIME-demo    # first reads the data of demo-stage-times from a run of `make demo`
    make pictures PREDICT=results/TIME-predict  # the same for held-out and time-by-load, from experiments/predict.toml

`demo-stage-times.json` has the mean time per stage of every configuration. `prediction.json` has the measured and the
predicted writes per second; `tests/models/test_field_data.py` compares it with the published data and the model.
`prediction-run.json` has the held-out configurations of a run, measured and predicted, and the time of a request in
each part for growing numbers of clients.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import altair as alt
import numpy as np
import vl_convert

from waylab.fit.observations import base_settings, observe, usable
from waylab.predict.runs import explain_run, fit_runs, judge_runs
from waylab.report.figures import style
from waylab.report.figures.inside import stage_times
from waylab.report.page.content import read_content
from waylab.runfolder.files import read_run

HERE = Path(__file__).parent
# Suffix of the file, colour of the text, background.
SCHEMES = (("", "#222222", "white"), ("-dark", "#e6e8ea", "transparent"))


def from_run(directory: Path) -> dict:
    """Read the means of all stages from a run folder."""
    content = read_content(directory)
    bars = [
        {
            "x": c.x,
            "series": c.series,
            "levels": {name: c.levels[name] for name in content.axes.series},
            "stages_ns": {name: times.mean_ns.mean for name, times in c.stages["all"].stages.items()},
        }
        for c in content.configurations
    ]
    return {
        "measured_utc": content.run.created_utc,
        "x": content.axes.x,
        "levels": content.axes.levels,
        "series": content.axes.series,
        "bars": bars,
    }


def stages_chart(data: dict) -> tuple[str, alt.LayerChart]:
    """Return title and chart of the report's figure `stage-times`."""
    axes = SimpleNamespace(
        x=data["x"], numeric=True, logarithmic=False, levels=data["levels"], series=data["series"]
    )
    bars = [
        SimpleNamespace(
            x=bar["x"],
            series=bar["series"],
            levels=bar["levels"],
            stages={
                "all": SimpleNamespace(
                    stages={
                        name: SimpleNamespace(mean_ns=SimpleNamespace(mean=mean_ns))
                        for name, mean_ns in bar["stages_ns"].items()
                    }
                )
            },
        )
        for bar in data["bars"]
    ]
    names = list(dict.fromkeys(bar.series for bar in bars))
    (figure,) = (
        one
        for one in stage_times(SimpleNamespace(axes=axes, configurations=bars, series=names, middle="proxy"))
        if one.name == "stage-times"
    )
    return figure.title, figure.chart


def prediction_chart(data: dict) -> tuple[str, alt.LayerChart]:
    """Return title and chart of measured points and predicted lines."""
    names = list(data["measured"])
    colour = alt.Color(
        "workers:N",
        title="workers per middleware",
        scale=style.colour(names),
        sort=names,
        legend=alt.Legend(columns=4),
    )
    shape = alt.Shape("workers:N", title="workers per middleware", scale=style.shape(names), sort=names)
    measured, predicted = (
        alt.Chart(
            alt.Data(
                values=[
                    {"workers": name, "clients": clients, "writes_per_s": rate}
                    for name, points in data[kind].items()
                    for clients, rate in points
                ]
            )
        ).encode(
            x=alt.X("clients:Q", title="clients", axis=alt.Axis(grid=False)),
            y=alt.Y("writes_per_s:Q", title="throughput (writes/s)"),
            color=colour,
        )
        for kind in ("measured", "predicted")
    )
    title = "Points: measured. Lines: predicted from the measurement with 64 workers"
    return title, alt.layer(predicted.mark_line(), measured.mark_point(opacity=1).encode(shape=shape))


# Numbers of clients between the smallest measured one and twice the largest.
_STEPS = 24


def predictions_of(directory: Path) -> dict:
    """Fit the models to a run, and keep what the pictures of docs/prediction.md show."""
    observations = observe([directory])
    _, judged = judge_runs(observations)
    held = [
        {
            "configuration": one.measured.configuration,
            "extrapolates": bool(one.predicted.extrapolates),
            "measured_per_s": one.measured.throughput_per_s,
            "predicted_per_s": dataclasses.astuple(one.predicted.throughput_per_s),
        }
        for one in judged
        if one.model == "chosen" and one.predicted is not None
    ]
    rows = usable(observations)
    fitted, base = fit_runs(rows), base_settings(rows)
    clients = fitted.domain.levels["clients"]
    counts = np.unique(np.geomspace(clients[0], 2 * clients[-1], _STEPS).round().astype(int))
    parts = [
        {"clients": int(count), "part": part.name, "time_s": part.time_s}
        for count in counts
        for part in explain_run(fitted, dataclasses.replace(base, clients=int(count))).parts
    ]
    return {
        "measured_utc": read_run(directory).created_utc,
        "held_out": held,
        "base": base.as_dict(),
        "measured_clients": clients,
        "parts": parts,
    }


def held_out_chart(data: dict) -> tuple[str, alt.LayerChart]:
    """Return title and chart of predicted over measured throughput with intervals."""
    rows = [
        {
            "configuration": one["configuration"],
            "where": "beyond the calibrated levels" if one["extrapolates"] else "between calibrated levels",
            "measured": one["measured_per_s"],
            **dict(zip(("predicted", "low", "high"), one["predicted_per_s"], strict=True)),
        }
        for one in data["held_out"]
    ]
    names = ["between calibrated levels", "beyond the calibrated levels"]
    ends = [min(row["measured"] for row in rows) * 0.9, max(row["measured"] for row in rows) * 1.1]
    log = alt.Scale(type="log", nice=False)
    across = alt.X("measured:Q", title="measured throughput (requests/s)", scale=log)
    colour = alt.Color("where:N", title=None, sort=names, scale=style.colour(names))
    shape = alt.Shape("where:N", title=None, sort=names, scale=style.shape(names))
    chart = alt.Chart(alt.Data(values=rows))
    exact = (
        alt.Chart(alt.Data(values=[{"measured": end, "predicted": end} for end in ends]))
        .mark_line(strokeDash=[4, 4], strokeWidth=1, color="#8C8C8C")
        .encode(x=across, y="predicted:Q")
    )
    title = "predicted throughput (requests/s)"
    bars = chart.mark_rule().encode(
        x=across, y=alt.Y("low:Q", title=title, scale=log), y2="high:Q", color=colour
    )
    points = chart.mark_point(opacity=1, filled=True).encode(
        x=across, y=alt.Y("predicted:Q", title=title, scale=log), color=colour, shape=shape
    )
    said = "Configurations that the models have not seen; bars: 90 % intervals; on the dashed line: exact"
    return said, alt.layer(exact, bars, points)


def time_by_load_chart(data: dict) -> tuple[str, alt.LayerChart]:
    """Return title and chart of the time of a request in each part over the number of clients."""
    rows = [{**one, "time_ms": 1e3 * one["time_s"]} for one in data["parts"]]
    last = max(row["clients"] for row in rows)
    names = [row["part"] for row in sorted(rows, key=lambda row: -row["time_s"]) if row["clients"] == last]
    rows = [{**row, "place": names.index(row["part"])} for row in rows if row["part"] in names]
    areas = (
        alt.Chart(alt.Data(values=rows))
        .mark_area(opacity=1, stroke="#FFFFFF", strokeWidth=1)
        .encode(
            x=alt.X(
                "clients:Q",
                title="clients",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(grid=False),
            ),
            y=alt.Y("time_ms:Q", title="mean time of a request (ms)", stack="zero"),
            color=alt.Color(
                "part:N", title="part", sort=names, scale=style.colour(names), legend=alt.Legend(columns=4)
            ),
            order=alt.Order("place:Q"),
        )
    )
    edge = (
        alt.Chart(alt.Data(values=[{"clients": max(data["measured_clients"])}]))
        .mark_rule(strokeDash=[6, 3], color="#8C8C8C")
        .encode(x="clients:Q")
    )
    return (
        "Where the time of a request goes; right of the dashed line: more clients than measured",
        alt.layer(areas, edge),
    )


def drawings() -> dict[str, str]:
    """Return every picture as SVG by the name of its file."""
    found = {}
    for stem, source, chart_of in (
        ("demo-stage-times", "demo-stage-times", stages_chart),
        ("prediction", "prediction", prediction_chart),
        ("held-out", "prediction-run", held_out_chart),
        ("time-by-load", "prediction-run", time_by_load_chart),
    ):
        title, chart = chart_of(json.loads((HERE / f"{source}.json").read_text()))
        for suffix, text, background in SCHEMES:
            specification = chart.properties(width=style.WIDTH, height=style.HEIGHT, title=title).to_dict()
            specification["config"] = style.config(text) | {
                "background": background,
                "title": {"color": text},
            }
            found[f"{stem}{suffix}.svg"] = vl_convert.vegalite_to_svg(specification)
    return found


def main() -> None:
    """Draw the pictures; with run folders as arguments, read the data from them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--demo", type=Path, help="folder of a run of `make demo`")
    parser.add_argument("--predict", type=Path, help="folder of a run of experiments/predict.toml")
    given = parser.parse_args()
    for folder, name, read in (
        (given.demo, "demo-stage-times", from_run),
        (given.predict, "prediction-run", predictions_of),
    ):
        if folder is not None:
            (HERE / f"{name}.json").write_text(json.dumps(read(folder), indent=1) + "\n")
    for name, svg in drawings().items():
        (HERE / name).write_text(svg)
        print(HERE / name)


if __name__ == "__main__":
    main()
