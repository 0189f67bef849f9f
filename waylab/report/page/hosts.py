"""Where a run took place, in the words of the page: the hosts with their links as described and as measured."""

from html import escape

from waylab.report.page.content import Content
from waylab.report.page.numbers import NONE, shown, signed_percent_text
from waylab.report.tables.table import table
from waylab.runfolder.analysis import TestbedSummary
from waylab.runfolder.trial import Link

_WIDTHS = {"up_mbit": "up", "down_mbit": "down", "delay_ms": "delay"}


def hosts_table(content: Content) -> str:
    """Every emulated host; nothing when the programs ran on this machine as it is."""
    links = content.analysis.testbed.links
    if not links:
        return ""
    rows = [
        [
            escape(name),
            escape(link.profile) or NONE,
            shown(link.cores),
            *(_checked(link, key) for key in _WIDTHS),
            shown(link.round_trip_median_ms, lambda time_ms: f"{time_ms:.3f}"),
        ]
        for name, link in links.items()
    ]
    headings = ["host", "profile", "cores", "up, Mbit/s", "down, Mbit/s", "delay, ms", "round trip, ms"]
    scale = content.analysis.testbed.time_scale
    scaled = (
        ""
        if scale == 1
        else (
            f" Time scale {scale:g}: one second of the described hosts takes {scale:g} s here. "
            f"The described rates are {scale:g} times as high, the described delays {scale:g} times shorter."
        )
    )
    return table(
        headings,
        rows,
        "Emulated hosts. Rates are of Ethernet frames; in brackets the TCP payload that was measured before the "
        "trials, in Mbit/s, and how far it is from what such frames carry. – has no limit." + scaled,
    )


def threats(content: Content) -> list[str]:
    """Return the threats to validity that follow from where the run took place."""
    if content.spec.gates.imported:
        return [
            "The results were imported: which machines they were measured on, and what else ran there, is unknown. "
            "The trials are in the order of the files, so a drift between configurations is part of their difference."
        ]
    testbed = content.analysis.testbed
    cores = shown(content.environment.cores_usable)
    programs = "load, services and database" if content.of_messages else "load, proxy and backends"
    if testbed.kind == "local":
        return [
            f"Everything ran on one host with {cores} cores and over the loopback: "
            f"{programs} compete for the CPU, and there is no real network. "
            "Only ratios carry over to other machines."
        ]
    if testbed.kind == "ssh":
        return [_of_other_machines(testbed)]
    found = [
        f"The hosts are emulated on one machine with {cores} cores: their links are as described and were measured, "
        "but the work of the network itself is done by the cores that run the programs, "
        "and there is one memory and one cache for all of them."
    ]
    if testbed.oversubscribed:
        found.append(
            f"The hosts of a trial have {shown(testbed.cores_described, lambda number: f'{number:g}')} cores "
            f"together, the machine has {shown(testbed.cores_usable)}: a limit that is not one of a link may be "
            "one of this machine."
        )
    if testbed.time_scale != 1:
        found.append(
            f"Everything is {testbed.time_scale:g} times slower than on the described hosts, except for system "
            "calls, wake-ups and the timers of the kernel. Rules and findings about rates and times are converted "
            f"to the described hosts: rates times {testbed.time_scale:g}, times divided by it. "
            "All other numbers are as measured here."
        )
    if testbed.pinning == "shared" and any(link.cores for link in testbed.links.values()):
        found.append(
            "A host's cores are a share of the CPU time of all cores, not cores of its own: "
            "the kernel throttles it for some milliseconds whenever it has used its share."
        )
    return found


def _of_other_machines(testbed: TestbedSummary) -> str:
    """Return how well the clocks of the machines are known, and what was not measured."""
    names = ", ".join(f"{name} ({host.cores} cores)" for name, host in testbed.hosts.items())
    # Two hosts are compared at most, each with the error of its own clock.
    errors_ns = sorted((clock.error_ns for clock in testbed.clocks.values()), reverse=True)[:2]
    return (
        f"The hosts are other machines: {names}. Their links and other load of their network were not measured. "
        f"Times of two of them are compared with an error of up to {shown(sum(errors_ns) / 1000)} µs, "
        "which concerns the parts of a difference between client and proxy, and no time within one program."
    )


def _checked(link: Link, key: str) -> str:
    check = next((check for check in link.checks if check.name == key), None)
    if check is None:
        return NONE
    measured = shown(check.measured, lambda number: f"{number:.4g}")
    return f"{shown(check.asked)} [{measured}, {shown(check.error, signed_percent_text)}]"
