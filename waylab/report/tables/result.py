"""Tables of what was measured: results, operations, stages, and both ends' view of the same requests."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import interval, rate_text, shown, time_text
from waylab.report.tables.table import table

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
        "CPU time per request",
        "interrupts",
    ]
    rows = []
    for c in content.analysis.configurations:
        everything = c.operations.get("all")
        percentiles = everything.percentiles_ns if everything else {}
        rows.append(
            [
                escape(c.name),
                f"{shown(c.used)} of {shown(c.trials)}",
                interval(c.throughput_per_s, rate_text),
                interval(everything.response_mean_ns if everything else None, time_text),
                *(shown(percentiles.get(percent), time_text) for percent in ("50", "90", "95", "99", "99.9")),
                interval(c.cpu_per_request_ns.get("total"), time_text),
                interval(c.cpu_per_request_ns.get("interrupts"), time_text),
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
            operation = c.operations.get(name)
            if operation and operation.count:
                percentiles = operation.percentiles_ns
                rows.append(
                    [
                        escape(c.name),
                        escape(name.upper()),
                        shown(operation.count, rate_text),
                        interval(operation.response_mean_ns, time_text),
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
            found = c.stages.get(operation)
            if found:
                cells = [
                    " / ".join(shown(value, time_text) for value in (times.p50_ns, times.p95_ns))
                    for times in (found.stages[stage] for stage in _STAGES)
                ]
                rows.append(
                    [escape(c.name), escape(operation.upper()), shown(found.count, rate_text), *cells]
                )
    return table(
        ["configuration", "operation", "records", *_STAGES],
        rows,
        f"Time per stage in the {content.middle}, median / 95th percentile.",
    )


def views_table(content: Content) -> str:
    """The client's and the proxy's view of the same requests."""
    rows = []
    for c in content.configurations:
        view = c.proxy_view
        if view:
            means = (
                view.client_mean_ns,
                view.proxy_mean_ns,
                view.difference_mean_ns,
                view.before_mean_ns,
                view.after_mean_ns,
            )
            rows.append(
                [
                    escape(c.name),
                    shown(view.joined.mean, rate_text),
                    shown(view.unmatched.mean, rate_text),
                    *(interval(mean_ns, time_text) for mean_ns in means),
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
