"""CPU time of each program over the measured window, interpolated from the telemetry."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from waylab import bounded
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.load import LoadCpu
from waylab.runfolder.trial import CpuAccounting
from waylab.runfolder.trial_numbers import CpuUse, MachineUse

# The error of the share, because /proc rounds the CPU time of each process to 10 ms.
_RESOLUTION = 0.02
# A window that telemetry covers less than this would be mostly extrapolation.
_COVERED_MIN = 0.9


def roles_cpu_s(directory: Path, window_ns: tuple[int, int]) -> dict[str, float]:
    """CPU seconds within the window of each role, whose programs are summed, and of `waylab` itself."""
    series: dict[str, list[tuple[int, float]]] = {}
    for row in _rows(directory / paths.PROCESSES):
        if row["process"].startswith("load"):
            # It ends with the window, so its last sample lies well before the end; and it measures itself.
            continue
        spent_s = float(row["user_s"]) + float(row["system_s"])
        series.setdefault(row["process"], []).append((int(row["clock_ns"]), spent_s))
    if not series:
        raise LabError(f"{directory / paths.PROCESSES}: is empty")
    spent: dict[str, float] = {}
    for process, points in series.items():
        role = "backends" if process.startswith("backend") else process.partition("-")[0]
        spent[role] = spent.get(role, 0.0) + increase_within(points, window_ns, directory)
    return spent


def machine(directory: Path, window_ns: tuple[int, int]) -> MachineUse:
    """What the whole machine did within the window: busy and steal seconds, bytes over all interfaces."""
    columns: dict[str, list[tuple[int, float]]] = {}
    for row in _rows(directory / paths.MACHINE):
        older = [name for name in MachineUse.__struct_fields__ if name not in row]
        if older:
            raise LabError(
                f"{directory / paths.MACHINE}: has no column {older[0]}, so an older version of the lab wrote it; "
                "measure again with: waylab run SPEC, or report the run with the version that measured it"
            )
        clock_ns = int(row["clock_ns"])
        for name in MachineUse.__struct_fields__:
            columns.setdefault(name, []).append((clock_ns, float(row[name])))
    if not columns:
        raise LabError(f"{directory / paths.MACHINE}: is empty")
    return MachineUse(
        **{name: increase_within(points, window_ns, directory) for name, points in columns.items()}
    )


def cpu_use(
    directory: Path,
    load: LoadCpu,
    window_ns: tuple[int, int],
    requests: int,
    roles: Iterable[str],
    accounting: CpuAccounting | None = None,
    covariate: str = "",
) -> CpuUse:
    """CPU seconds by program, the cost of one request in all `roles`, and the share of programs that are not ours.

    With a `covariate`, also the CPU time of the computation that shows the machine's speed.
    """
    spent_s = roles_cpu_s(directory, window_ns)
    spent_s["load"] = load.user_s + load.system_s
    host = machine(directory, window_ns)
    capacity_s = host.capacity_s
    system = {role: spent_s[role] for role in ("load", *roles) if role in spent_s}
    per_request = {role: 1e9 * value / requests for role, value in system.items()} if requests else {}
    if per_request:
        per_request["total"] = sum(per_request.values())
        # Of the whole machine, and on some kernels contained in the programs' own time: never part of the total.
        per_request["interrupts"] = 1e9 * host.interrupt_s / requests
    return CpuUse(
        cpu_s=spent_s,
        cpu_per_request_ns=per_request,
        machine=host,
        foreign_share=foreign_share(
            host, sum(spent_s.values()), accounting, _edge_error_s(directory, window_ns, spent_s["load"])
        ),
        busy_share=1 - host.idle_s / capacity_s if capacity_s else None,
        steal_share=host.steal_s / capacity_s if capacity_s else None,
        probe_ns=_probe_ns(directory, window_ns) if covariate else None,
    )


def _probe_ns(directory: Path, window_ns: tuple[int, int]) -> float:
    """Return the mean CPU time of the computation that shows the machine's speed."""
    rows = _rows(directory / paths.MACHINE)
    if not rows or "probes" not in rows[0] or "probe_cpu_s" not in rows[0]:
        raise LabError(f"{directory / paths.MACHINE}: has no columns probes and probe_cpu_s; measure again")
    count, cpu_s = (
        increase_within([(int(row["clock_ns"]), float(row[name])) for row in rows], window_ns, directory)
        for name in ("probes", "probe_cpu_s")
    )
    if not count > 0 or not cpu_s > 0:
        raise LabError(f"{directory / paths.MACHINE}: the speed of the machine was not measured")
    return 1e9 * cpu_s / count


def foreign_share(
    host: MachineUse, ours_s: float, accounting: CpuAccounting | None, edge_error_s: float = 0.0
) -> float | None:
    """Return the CPU time of programs that are not ours, as a share of the machine; None without any time.

    The busy time is the time that was not idle. The kernel measures idle time, but only samples user and system time
    with its ticks (get_idle_time in fs/proc/stat.c, on kernels with CONFIG_NO_HZ).

    The machine's time must include the same parts as the processes' time `ours_s`. If these parts are unknown,
    interrupts and steal time are included, so that the share can only be too large.

    A value slightly below 0 is 0. The machine's time at the edges of the window is interpolated, with an error of up to
    `edge_error_s`. Any other negative value is returned, and the gate refuses it.
    """
    capacity_s = host.capacity_s
    if capacity_s <= 0:
        return None
    known = accounting or CpuAccounting(interrupts_in_processes=None, steal_in_processes=None)
    busy_s = capacity_s - host.idle_s
    busy_s -= host.interrupt_s if known.interrupts_in_processes is False else 0.0
    busy_s -= host.steal_s if known.steal_in_processes is False else 0.0
    share = (busy_s - ours_s) / capacity_s
    resolution = _RESOLUTION + edge_error_s / capacity_s
    return 0.0 if -resolution <= share < 0 else share


def _edge_error_s(directory: Path, window_ns: tuple[int, int], load_s: float) -> float:
    """Return by how much the machine's CPU seconds in the window may be too small.

    The load starts and ends with the window and measures its own time exactly. The machine's time is a line between
    two samples. If the load begins between them, the line is too low by at most a quarter of their distance times the
    CPU time of the load per second.
    """
    clocks = np.array([int(row["clock_ns"]) for row in _rows(directory / paths.MACHINE)])
    gaps_ns = [
        clocks[after] - clocks[after - 1]
        for after in np.searchsorted(clocks, window_ns)
        if 0 < after < len(clocks)
    ]
    return float(sum(gaps_ns) / 4 * load_s / (window_ns[1] - window_ns[0]))


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        return bounded.read_csv(path)
    except FileNotFoundError:
        raise LabError(f"{path}: not found") from None
    except bounded.UnreadableError as error:
        raise LabError(f"{path}: {error}") from None


def increase_within(points: list[tuple[int, float]], window_ns: tuple[int, int], directory: Path) -> float:
    """Return the increase of a counter, given as (clock in ns, value), within the window; linear in between."""
    clocks, values = np.array([point[0] for point in points]), np.array([point[1] for point in points])
    if not np.isfinite(values).all() or not (np.diff(clocks) > 0).all():
        raise LabError(
            f"{directory}: the telemetry has values that are not numbers, or clocks that do not increase"
        )
    start, end = window_ns
    covered = min(end, clocks[-1]) - max(start, clocks[0])
    if len(points) < 2 or covered < _COVERED_MIN * (end - start):
        raise LabError(f"{directory}: the telemetry covers too little of the measured window")
    at_end, at_start = np.interp([end, start], clocks, values)
    # What lies outside the samples is taken to have gone on at the same pace.
    return float((at_end - at_start) * (end - start) / covered)
