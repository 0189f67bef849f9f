"""The tables of the page. Each takes what it shows from the JSON and only writes it down."""

from html import escape
from typing import Any

from waylab.report.content import Content
from waylab.report.numbers import (
    NONE,
    interval,
    percent_text,
    rate_text,
    ratio_text,
    shown,
    signed_percent_text,
    time_text,
)
from waylab.report.table import table

_STAGES = "parse route admit queue send backend reply total".split()


def results_table(content: Content) -> str:
    """Throughput, response time and cost of every configuration."""
    headings = [
        "configuration",
        "trials used",
        "throughput, 1/s",
        "mean response",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "processor time for a request",
        "interrupts",
    ]
    rows = []
    for c in content.analysis["configurations"]:
        everything = c["operations"].get("all", {})
        percentiles = everything.get("percentiles_ns", {})
        rows.append(
            [
                escape(c["name"]),
                f"{shown(c['used'])} of {shown(c['trials'])}",
                interval(c["throughput_per_s"], rate_text),
                interval(everything.get("response_mean_ns"), time_text),
                *(shown(percentiles.get(percent), time_text) for percent in ("50", "90", "95", "99", "99.9")),
                interval(c["cpu_per_request_ns"].get("total"), time_text),
                interval(c["cpu_per_request_ns"].get("interrupts"), time_text),
            ]
        )
    return table(
        headings,
        rows,
        "Means with 95 % intervals across trials; percentiles of all requests together, where ten or more lie above.",
    )


def operations_table(content: Content) -> str:
    """Every operation, such as GET and SET."""
    rows = []
    for c in content.configurations:
        for name in content.operations:
            operation = c["operations"].get(name)
            if operation and operation["count"]:
                percentiles = operation["percentiles_ns"]
                rows.append(
                    [
                        escape(c["name"]),
                        name.upper(),
                        shown(operation["count"], rate_text),
                        interval(operation["response_mean_ns"], time_text),
                        *(shown(percentiles.get(percent), time_text) for percent in ("50", "95", "99")),
                    ]
                )
    return table(
        ["configuration", "operation", "requests", "mean response", "p50", "p95", "p99"],
        rows,
        "Response time by operation.",
    )


def stages_table(content: Content) -> str:
    """Median and 95th percentile of every stage."""
    rows = []
    for c in content.configurations:
        for operation in content.operations_with_stages:
            found = c["stages"].get(operation)
            if found:
                cells = [
                    " / ".join(shown(found["stages"][stage][key], time_text) for key in ("p50_ns", "p95_ns"))
                    for stage in _STAGES
                ]
                rows.append([escape(c["name"]), operation.upper(), shown(found["count"], rate_text), *cells])
    return table(
        ["configuration", "operation", "records", *_STAGES],
        rows,
        f"Time per stage in the {content.middle}, median / 95th percentile.",
    )


def views_table(content: Content) -> str:
    """The client's and the proxy's view of the same requests."""
    rows = []
    for c in content.configurations:
        view = c["proxy_view"]
        if view:
            keys = (
                "client_mean_ns",
                "proxy_mean_ns",
                "difference_mean_ns",
                "before_mean_ns",
                "after_mean_ns",
            )
            rows.append(
                [
                    escape(c["name"]),
                    shown(view["joined"]["mean"], rate_text),
                    shown(view["unmatched"]["mean"], rate_text),
                    *(interval(view[key], time_text) for key in keys),
                ]
            )
    headings = [
        "configuration",
        "requests joined (mean of trials)",
        "without partner",
        "client",
        content.middle,
        "difference",
        "on the way in",
        "on the way out",
    ]
    return table(
        headings,
        rows,
        "The same requests, means. The way out may be negative: "
        f"the {content.middle} reads its clock after its write returned.",
    )


def laws_table(content: Content) -> str:
    """The interactive law, and whether the keys were found."""
    rows = [
        [
            escape(c["name"]),
            shown(c["load"]["clients"]),
            shown(c["load"]["pipeline"]),
            escape(c["load"]["think_time"]),
            interval(c["interactive_law_error"], signed_percent_text),
            interval(c["hit_ratio"], percent_text),
            interval(c["generator_cpu_share"], percent_text),
            interval(c["busy_share"], percent_text),
        ]
        for c in content.configurations
    ]
    headings = [
        "configuration",
        "clients",
        "pipeline",
        "think time",
        "X(R+Z)/N - 1",
        "hit ratio",
        "load's share of a core",
        "machine busy",
    ]
    return table(
        headings,
        rows,
        "Laws and conditions, means over trials with 95 % intervals. N is clients times pipeline.",
    )


def models_table(content: Content) -> str:
    """Measured and predicted, configuration by configuration."""
    rows = []
    for entry in content.predictions["entries"]:
        measured, predicted, error = entry["measured"], entry["predicted"] or {}, entry["error"]
        parameters = ", ".join(_parameter(name, value) for name, value in (entry["parameters"] or {}).items())
        rows.append(
            [
                escape(entry["model"]),
                escape(entry["configuration"]),
                parameters or NONE,
                shown(predicted.get("utilisation"), ratio_text),
                _both(measured, predicted, "throughput_per_s", rate_text),
                shown(error.get("throughput_per_s"), signed_percent_text),
                _both(measured, predicted, "response_mean_ns", time_text),
                shown(error.get("response_mean_ns"), signed_percent_text),
                escape(entry["reason"] or ""),
            ]
        )
    headings = [
        "model",
        "configuration",
        "parameters",
        "utilisation",
        "throughput, measured → predicted",
        "error",
        "mean response, measured → predicted",
        "error",
        "why not",
    ]
    return table(headings, rows, "Error is predicted / measured - 1.")


def models_summary_table(content: Content) -> str:
    """How far each model is off altogether."""
    rows = [
        [
            escape(s["model"]),
            f"{shown(s['applies'])} of {shown(s['configurations'])}",
            *(
                shown(s[metric][kind], percent_text)
                for metric in ("throughput_per_s", "response_mean_ns")
                for kind in ("median_error", "largest_error")
            ),
            escape(s["source"] or ""),
        ]
        for s in content.predictions["summary"]
    ]
    headings = [
        "model",
        "applies to",
        "throughput, median error",
        "largest",
        "response, median error",
        "largest",
        "where its parameters come from",
    ]
    return table(headings, rows, "Absolute relative errors over the configurations.")


def comparisons_table(content: Content) -> str:
    """Every comparison, overall and by the levels of the other factors."""
    rows = []
    for c in content.analysis["comparisons"]:
        time = time_text if c["metric"].endswith("_ns") or "cpu" in c["metric"] else rate_text
        parts = [("all", c["overall"]), *((part["levels"], part) for part in c["strata"] if part["levels"])]
        for levels, part in parts:
            overall = part is c["overall"]
            rows.append(
                [
                    f"{escape(c['metric'])}: {escape(c['candidate'])} / {escape(c['baseline'])}",
                    escape(levels),
                    shown(c["baseline_value"]["mean"], time) if overall else "",
                    shown(c["candidate_value"]["mean"], time) if overall else "",
                    shown(part["ratio"], ratio_text),
                    f"{shown(part['low'], ratio_text)} to {shown(part['high'], ratio_text)}",
                    shown(part["blocks"]),
                    {True: "excludes 1", False: "includes 1", None: NONE}[part["excludes_1"]],
                    {True: "shown", False: "not shown", None: NONE}[part["equivalent"]],
                ]
            )
    headings = [
        "comparison",
        "where",
        "baseline, mean",
        "candidate, mean",
        "ratio",
        "95 % interval",
        "blocks",
        "interval",
        "equivalence",
    ]
    return table(headings, rows, "Paired within blocks on the log scale; the block is the unit.")


def gates_table(content: Content) -> str:
    """Every gate of every trial."""
    names = list(
        dict.fromkeys(gate["name"] for trial in content.analysis["trials"] for gate in trial["gates"])
    )
    rows = []
    for trial in content.analysis["trials"]:
        gates = {gate["name"]: gate for gate in trial["gates"]}
        mark = '<span class="pass">used</span>' if trial["used"] else '<span class="fail">NOT USED</span>'
        rows.append([f"{escape(trial['id'])}", mark, *(_gate(gates.get(name)) for name in names)])
    return table(
        ["trial", "verdict", *names],
        rows,
        "Every gate of every trial; – does not apply. Hold the pointer over a cell for its words.",
        "gates",
    )


def failed_trials(content: Content) -> str:
    """The trials that are not used, with the reasons."""
    failed = [trial for trial in content.analysis["trials"] if not trial["used"]]
    if not failed:
        return '<p class="good">Every trial passed every gate.</p>'
    items = "".join(f"<li><b>{escape(t['id'])}</b>: {escape('; '.join(t['reasons']))}</li>" for t in failed)
    return f'<div class="bad"><p><b>These trials are not used in any aggregate:</b></p><ul>{items}</ul></div>'


def _gate(gate: dict[str, Any] | None) -> str:
    if gate is None or gate["passed"] is None:
        return f'<span title="{escape(gate["text"]) if gate else ""}">{NONE}</span>'
    kind, mark = ("pass", "✓") if gate["passed"] else ("fail", "✗")
    value = f" {shown(gate['value'], lambda number: f'{number:.4g}')}" if gate["value"] is not None else ""
    return f'<span class="{kind}" title="{escape(gate["text"])}">{mark}{value}</span>'


def _both(measured: dict[str, Any], predicted: dict[str, Any], metric: str, text: Any) -> str:
    return f"{shown(measured[metric], text)} → {shown(predicted.get(metric), text)}"


def _parameter(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"{_parameter(name, value[0])} to {_parameter(name, value[-1]).rpartition(' ')[2]}"
    stem, _, unit = name.rpartition("_")
    if unit == "ns":
        return f"{escape(stem)} {shown(value, time_text)}"
    if unit == "s" and stem.endswith("_per"):
        return f"{escape(stem[:-4])} {shown(value, rate_text)}/s"
    if unit == "s":
        return f"{escape(stem)} {shown(value, lambda time_s: time_text(1e9 * time_s))}"
    return f"{escape(name)} {shown(value)}"
