"""Draws the pictures of the README from the data beside this file, each for a light and for a dark page.

    make pictures                          # draws demo-stage-times and prediction
    make pictures RUN=results/TIME-demo    # first reads the data of demo-stage-times from a run of `make demo`

`demo-stage-times.json` has the mean time per stage of every configuration. `prediction.json` has the measured and the
predicted writes per second; `tests/models/test_field_data.py` compares it with the published data and the model.
"""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import altair as alt
import vl_convert

from waylab.report.figures import style
from waylab.report.figures.inside import stage_times
from waylab.report.page.content import read_content

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
        for one in stage_times(
            SimpleNamespace(axes=axes, configurations=bars, series=names, middle="proxy")
        )
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


def drawings() -> dict[str, str]:
    """Return every picture as SVG by the name of its file."""
    found = {}
    for stem, chart_of in (("demo-stage-times", stages_chart), ("prediction", prediction_chart)):
        title, chart = chart_of(json.loads((HERE / f"{stem}.json").read_text()))
        for suffix, text, background in SCHEMES:
            specification = chart.properties(width=style.WIDTH, height=style.HEIGHT, title=title).to_dict()
            specification["config"] = style.config(text) | {
                "background": background,
                "title": {"color": text},
            }
            found[f"{stem}{suffix}.svg"] = vl_convert.vegalite_to_svg(specification)
    return found


def main() -> None:
    """Draw the pictures; with a run folder as argument, read the data of the first one from it."""
    if len(sys.argv) > 1 and sys.argv[1]:
        data = from_run(Path(sys.argv[1]))
        (HERE / "demo-stage-times.json").write_text(json.dumps(data, indent=1) + "\n")
    for name, svg in drawings().items():
        (HERE / name).write_text(svg)
        print(HERE / name)


if __name__ == "__main__":
    main()
