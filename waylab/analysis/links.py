"""The emulated links of a trial: were they what was asked for, and how full were they while it was measured?

A link without a limit has no utilisation. Trials on this machine as it is have no links.
"""

import csv
from pathlib import Path
from typing import Any

from waylab.analysis.processor import increase_within
from waylab.runfolder import paths

_WAYS = {"up": "sent_bytes", "down": "received_bytes"}
# From here on a link is said to be what limits a configuration.
_FULL = 0.95


def link_use(
    directory: Path, testbed: dict[str, Any], plan: dict[str, Any], window_ns: tuple[int, int]
) -> dict[str, Any]:
    """Return the utilisation of every limited direction of the hosts in use, frames dropped, time stood still."""
    path = directory / paths.HOSTS
    links = testbed.get("links", {})
    if not links or not path.is_file():
        return {"utilisation": {}, "throttled_share": {}, "dropped_packets": 0}
    window_s = (window_ns[1] - window_ns[0]) * 1e-9
    series = _series(path, set(hosts_in_use(plan)))
    utilisation, throttled, dropped = {}, {}, 0
    for host, rows in series.items():
        for way, column in _WAYS.items():
            asked_mbit = links[host][f"{way}_mbit"]
            if asked_mbit:
                sent_bytes = increase_within(rows[column], window_ns, directory)
                utilisation[f"{host} {way}"] = sent_bytes * 8e-6 / window_s / asked_mbit
        if links[host]["cores"]:
            throttled[host] = increase_within(rows["throttled_s"], window_ns, directory) / window_s
        for column in ("sent_dropped", "received_dropped"):
            dropped += round(rows[column][-1][1] - rows[column][0][1])
    return {"utilisation": utilisation, "throttled_share": throttled, "dropped_packets": dropped}


def hosts_in_use(plan: dict[str, Any]) -> list[str]:
    """Name the hosts of a trial, each once."""
    assignment = plan.get("assignment", {})
    used = list(assignment.get("load", []))
    for role, count in plan["system"]["description"]["programs"].items():
        used += assignment.get(role, [])[:count]
    return list(dict.fromkeys(used))


def worst_check(testbed: dict[str, Any], plan: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return host and check of the link that is farthest from what was asked for; None when nothing was."""
    links = testbed.get("links", {})
    found = [(host, check) for host in hosts_in_use(plan) if host in links for check in links[host]["checks"]]
    return max(found, key=lambda pair: abs(pair[1]["error"]), default=None)


def testbed_summary(trials: list[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    """Describe where a run took place, from (plan, facts of the testbed) of its trials; the last measurement counts."""
    facts = [testbed for _, testbed in trials if testbed]
    if not facts or facts[-1]["kind"] == "local":
        return {"kind": "local", "links": {}}
    last = facts[-1]
    cores = [
        sum(last["links"][host]["cores"] or 0 for host in hosts_in_use(plan) if host in last["links"])
        for plan, testbed in trials
        if testbed
    ]
    return last | {"cores_described": max(cores), "oversubscribed": max(cores) > last["cores_usable"]}


def link_facts(configurations: list[dict[str, Any]]) -> list[str]:
    """Say of the best configuration of every line which links were full."""
    series: dict[str, list[dict[str, Any]]] = {}
    for configuration in configurations:
        if configuration["used"] and configuration["link_utilisation"]:
            series.setdefault(configuration["series"], []).append(configuration)
    sentences = []
    for name, members in series.items():
        best = max(members, key=lambda member: member["throughput_per_s"]["mean"])
        full = {link: use["mean"] for link, use in best["link_utilisation"].items() if use["mean"] >= _FULL}
        listed = ", ".join(f"{link} {100 * share:.1f} %" for link, share in full.items())
        most = max(use["mean"] for use in best["link_utilisation"].values())
        sentences.append(
            f"{name}: at its highest throughput these links are full: {listed}."
            if full
            else f"{name}: at its highest throughput no link is full; the fullest is used to {100 * most:.1f} %."
        )
    return sentences


def _series(path: Path, hosts: set[str]) -> dict[str, dict[str, list[tuple[int, float]]]]:
    """Return the counters of every host in use over time: host, column, (clock in ns, value)."""
    found: dict[str, dict[str, list[tuple[int, float]]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            host, clock_ns = row.pop("host"), int(row.pop("clock_ns"))
            if host in hosts:
                columns = found.setdefault(host, {})
                for name, value in row.items():
                    columns.setdefault(name, []).append((clock_ns, float(value)))
    return found
