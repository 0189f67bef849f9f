"""The emulated links of a trial: were they what was asked for, and how full were they while it was measured?

A link without a limit has no utilisation. Trials on this machine as it is have no links.
"""

import math
from pathlib import Path

from waylab import bounded
from waylab.analysis.trial.artifacts import Artifacts
from waylab.analysis.trial.cpu import increase_within
from waylab.runfolder import paths
from waylab.runfolder.analysis import Configuration, TestbedSummary
from waylab.runfolder.run import PlannedTrial
from waylab.runfolder.trial import LinkCheck, TestbedFacts
from waylab.runfolder.trial_numbers import LinkUse

# From here on a link is said to be what limits a configuration.
_FULL = 0.95


def link_use(
    directory: Path, testbed: TestbedFacts, plan: PlannedTrial, window_ns: tuple[int, int]
) -> LinkUse:
    """Return the utilisation of every limited direction of the hosts in use, dropped frames, and throttled time."""
    path = directory / paths.HOSTS
    if not testbed.links or not path.is_file():
        return LinkUse(dropped_packets=0)
    window_s = (window_ns[1] - window_ns[0]) * 1e-9
    series = _series(path, set(hosts_in_use(plan)))
    utilisation, throttled, late, waiting, dropped = {}, {}, {}, {}, 0
    for host, rows in series.items():
        link = testbed.links[host]
        ways = (("up", link.up_mbit, "sent_bytes"), ("down", link.down_mbit, "received_bytes"))
        for way, rate_mbit, column in ways:
            if rate_mbit:
                sent_bytes = increase_within(rows[column], window_ns, directory)
                utilisation[f"{host} {way}"] = sent_bytes * 8e-6 / window_s / rate_mbit
        if link.cores:
            throttled[host] = increase_within(rows["throttled_s"], window_ns, directory) / window_s
            # Older versions of the lab did not count it.
            if "waited_s" in rows and testbed.time_scale > 1:
                spent = [increase_within(rows[name], window_ns, directory) for name in ("used_s", "waited_s")]
                # The programs of a paced host sleep when they have used their share, and no quota stops them.
                allowed = math.inf if link.paced else link.cores
                waiting[host] = waited_share(
                    allowed, throttled[host], spent[0] / window_s, spent[1] / window_s
                )
        if link.process:
            packets = [
                increase_within(rows[f"{way}_packets"], window_ns, directory) for way in ("sent", "received")
            ]
            late[host] = increase_within(rows["late_packets"], window_ns, directory) / max(1.0, sum(packets))
        for column in ("sent_dropped", "received_dropped"):
            dropped += round(rows[column][-1][1] - rows[column][0][1])
    return LinkUse(
        utilisation=utilisation,
        throttled_share=throttled,
        dropped_packets=dropped,
        late_share=late,
        waited_share=waiting,
        paced=[host for host in series if testbed.links[host].paced],
    )


def waited_share(cores: float, throttled: float, used: float, waited: float) -> float:
    """Return for which share of the time a host wanted CPU time that its quota allowed, and did not get it.

    `used` and `waited` are sums over threads, in seconds for each second. A thread that the quota stops waits, too,
    so this time is subtracted. Several threads that wait for one quota count several times, but a host that used its
    whole quota lost nothing. The quota that is left is therefore an upper limit.
    """
    return max(0.0, min(waited - throttled, cores - used))


def hosts_in_use(plan: PlannedTrial) -> list[str]:
    """Name the hosts of a trial, each once."""
    used = list(plan.assignment.get("load", []))
    for role, count in plan.description.programs.items():
        used += plan.assignment.get(role, [])[:count]
    return list(dict.fromkeys(used))


def worst_check(testbed: TestbedFacts, plan: PlannedTrial) -> tuple[str, LinkCheck] | None:
    """Return host and check of the link that is farthest from its settings; None without limited links."""
    links = testbed.links
    found = [(host, check) for host in hosts_in_use(plan) if host in links for check in links[host].checks]
    return max(found, key=lambda pair: abs(pair[1].error), default=None)


def testbed_summary(trials: list[Artifacts]) -> TestbedSummary:
    """Describe where a run took place, from its trials that were run; the last measurement counts."""
    if not trials or trials[-1].testbed.kind == "local":
        return TestbedSummary()
    last = trials[-1].testbed
    if last.kind == "ssh":
        return TestbedSummary(
            kind=last.kind, hosts=last.hosts, clocks=last.clocks, clock_host=last.clock_host
        )
    cores = max(
        sum(last.links[host].cores or 0 for host in hosts_in_use(trial.plan) if host in last.links)
        for trial in trials
    )
    return TestbedSummary(
        kind=last.kind,
        pinning=last.pinning,
        cores_usable=last.cores_usable,
        links=last.links,
        time_scale=last.time_scale,
        cores_described=cores,
        oversubscribed=last.cores_usable is not None and cores > last.cores_usable,
    )


def link_facts(configurations: list[Configuration]) -> list[str]:
    """Say of the best configuration of every line which links were full."""
    series: dict[str, list[Configuration]] = {}
    for configuration in configurations:
        if configuration.used and configuration.link_utilisation:
            series.setdefault(configuration.series, []).append(configuration)
    sentences = []
    for name, members in series.items():
        best = max(members, key=lambda member: member.throughput_per_s.known_mean())
        uses = {link: use.known_mean() for link, use in best.link_utilisation.items()}
        full = [f"{link} {100 * share:.1f} %" for link, share in uses.items() if share >= _FULL]
        sentences.append(
            f"{name}: at its highest throughput these links are full: {', '.join(full)}."
            if full
            else f"{name}: at its highest throughput no link is full; "
            f"the fullest is used to {100 * max(uses.values()):.1f} %."
        )
    return sentences


def _series(path: Path, hosts: set[str]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the counters of every host in use over time: host, column, (clock in ns, value)."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for row in bounded.read_csv(path):
        host, clock_ns = row.pop("host"), int(row.pop("clock_ns"))
        if host in hosts:
            columns = found.setdefault(host, {})
            for name, value in row.items():
                columns.setdefault(name, []).append((clock_ns, float(value)))
    return found
