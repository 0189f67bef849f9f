"""The `waylab model` commands: make the model, solve it, show it, draw it."""

import argparse
import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import wraps

from rich.console import Console

from waylab.cli.model.values import clients_values, measured_runs, spread
from waylab.cli.patience import Patience
from waylab.errors import LabError
from waylab.models.elementary import MG1, MM1, MM1K, ClosedMMc, GGm, MMm, MMmK, Queue
from waylab.models.errors import AssumptionError, ModelError
from waylab.models.network import Network, closed_network
from waylab.models.network_file import read_network
from waylab.models.result import Result
from waylab.models.simulate import simulate as simulate_network
from waylab.models.solve import solve
from waylab.models.summary.bounds import (
    bounds_as_dicts,
    explain_bounds,
    knee_of,
    limits_as_dicts,
    sweep_bounds,
)
from waylab.models.summary.explain import sentences
from waylab.models.summary.findings import Findings, find, knee_clients
from waylab.models.summary.findings_rows import findings_as_dict, sweep_as_dicts
from waylab.models.summary.queue import distribution_points, explain_queue, queue_as_dict
from waylab.models.summary.result import result_as_dict
from waylab.models.summary.usl import explain_usl, usl_as_dict
from waylab.models.sweep import changed, sweep
from waylab.models.usl import fit_usl
from waylab.report.models import charts, terminal
from waylab.report.models.figure import ModelFigure
from waylab.report.models.network_drawing import network_drawing
from waylab.report.models.write import write_figures

Command = Callable[[argparse.Namespace], int]
# Approximate number of points along the clients in a drawing of bounds.
_STEPS = 40


def in_one_line(command: Command) -> Command:
    """Turn errors of a model into the one line that a user sees."""

    @wraps(command)
    def guarded(arguments: argparse.Namespace) -> int:
        try:
            return command(arguments)
        except ModelError as error:
            raise LabError(str(error)) from None
        except argparse.ArgumentTypeError as error:
            raise LabError(str(error)) from None

    return guarded


@in_one_line
def mm1(arguments: argparse.Namespace) -> int:
    """One server, with or without a limit."""
    rates = (arguments.arrivals, _services_per_s(arguments))
    queue = MM1(*rates) if arguments.capacity is None else MM1K(*rates, arguments.capacity)
    return _show_queue(queue, arguments)


@in_one_line
def mmm(arguments: argparse.Namespace) -> int:
    """Several servers, with or without a limit."""
    rates = (arguments.arrivals, _services_per_s(arguments), arguments.servers)
    queue = MMm(*rates) if arguments.capacity is None else MMmK(*rates, arguments.capacity)
    return _show_queue(queue, arguments)


@in_one_line
def mg1(arguments: argparse.Namespace) -> int:
    """One server, any service time."""
    service_s = 1 / _services_per_s(arguments)
    return _show_queue(MG1(arguments.arrivals, service_s, arguments.variation), arguments)


@in_one_line
def ggm(arguments: argparse.Namespace) -> int:
    """Several servers, any arrivals and service times."""
    queue = GGm(
        arguments.arrivals,
        _services_per_s(arguments),
        arguments.servers,
        arguments.arrival_variation,
        arguments.variation,
    )
    return _show_queue(queue, arguments)


@in_one_line
def closed(arguments: argparse.Namespace) -> int:
    """Clients that wait for each reply."""
    service_s = 1 / _services_per_s(arguments)
    return _show_queue(
        ClosedMMc(arguments.clients, arguments.servers, service_s, arguments.think_time), arguments
    )


@in_one_line
def network(arguments: argparse.Namespace) -> int:
    """Solve a network, once or along a sweep."""
    described = read_network(arguments.file)
    parameter, values = arguments.sweep or ("clients", [])
    clients = clients_values(arguments.clients) if arguments.clients else []
    if len(clients) > 1:
        if arguments.sweep:
            raise LabError("model network: give either --sweep or a range of --clients")
        values = clients
    elif clients:
        described = changed(described, "clients", clients[0])
    if values:
        return _sweep(described, parameter, values, arguments)
    with Patience("solving", arguments.interrupt) as patience:
        result = solve(described, arguments.method)
        patience.check()
        findings = find(result)
    return _show_network(result, findings, arguments)


@in_one_line
def simulate(arguments: argparse.Namespace) -> int:
    """Simulate a network."""
    described = read_network(arguments.file)
    if arguments.clients is not None:
        described = changed(described, "clients", arguments.clients)
    names = ("seed", "replications", "requests", "precision")
    options = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    with Patience("simulating", arguments.interrupt) as patience:

        def solver(changed_network: Network) -> Result:
            patience.check()
            return simulate_network(changed_network, **options)

        result = solver(described)
        if arguments.explain:
            patience.show("solving each change")
        findings = find(result, solver, what_if=arguments.explain)
    return _show_network(result, findings, arguments)


@in_one_line
def bounds(arguments: argparse.Namespace) -> int:
    """Bounds from demands."""
    described = _described(arguments)
    words = explain_bounds(described)
    try:
        rows = bounds_as_dicts(described)
    except AssumptionError:
        # The sentences still say what is known, and why there are no bounds.
        rows = []
    if arguments.plot:
        _draw([_bounds_figure(described)], f"Bounds of {described.name}", words, arguments)
    if arguments.json:
        limits = limits_as_dicts(described)
        knee = knee_of(described)
        content = {"name": described.name, "bounds": rows, "limits": limits, "knee_clients": knee}
        return _print_json(content | {"explanation": words})
    terminal.show_bounds(described.name, rows, words, _console())
    return 0


def _described(arguments: argparse.Namespace) -> Network:
    """Return the network of a file, or one of the demands on the command line."""
    if (arguments.file is None) == (arguments.demands is None):
        raise LabError("model bounds: give either a FILE or --demands")
    if arguments.demands is None:
        if arguments.think_time is not None:
            raise LabError("model bounds: --think-time belongs to --demands; a FILE has its own")
        described = read_network(arguments.file)
        return changed(described, "clients", arguments.clients) if arguments.clients else described
    if arguments.clients is None:
        raise LabError("model bounds: --demands needs --clients")
    demands_s = {f"station {number}": demand_s for number, demand_s in enumerate(arguments.demands, 1)}
    return closed_network(demands_s, arguments.clients, arguments.think_time or 0.0, name="demands")


def _bounds_figure(described: Network) -> ModelFigure:
    """Draw the bounds and the solved network, up to twice the clients or three times the knee."""
    knee = knee_of(described)
    if not described.has_closed:
        raise LabError("model bounds: only closed networks have bounds to be drawn")
    last = max(2 * described.population, math.ceil(3 * (knee or 1)))
    values = spread(float(_least(described)), float(last), float(max(1, round(last / _STEPS))))
    rows = sweep_as_dicts(values, sweep(described, "clients", values))
    return charts.sweep_chart("clients", rows, sweep_bounds(described, "clients", values), knee)


def _least(described: Network) -> int:
    return sum(part.population > 0 for part in described.classes)


@in_one_line
def usl(arguments: argparse.Namespace) -> int:
    """Fit the Universal Scalability Law."""
    runs = measured_runs(arguments.file)
    with Patience("fitting", arguments.interrupt):
        fit = fit_usl([run["clients"] for run in runs], [run["throughput_per_s"] for run in runs])
        content = usl_as_dict(fit)
    words = explain_usl(fit)
    if arguments.plot:
        _draw([charts.usl_chart(content, runs)], content["name"], words, arguments)
    if arguments.json:
        return _print_json({**content, "explanation": words, "runs": runs})
    terminal.show_usl(content, words, _console())
    return 0


def _services_per_s(arguments: argparse.Namespace) -> float:
    return float(arguments.service) if arguments.service is not None else 1 / arguments.service_time


def _show_queue(queue: Queue, arguments: argparse.Namespace) -> int:
    words = explain_queue(queue).splitlines()
    content = queue_as_dict(queue)
    if arguments.plot:
        points = distribution_points(queue)
        if not points:
            raise LabError(f"{queue.name}: its distribution is unknown; simulate it")
        figure = charts.distribution_chart(queue.name, points)
        _draw([figure], queue.name, words, arguments)
    if arguments.json:
        return _print_json({**content, "explanation": words})
    terminal.show_queue(f"{queue.name}  ({queue.kind})", content["values"], words, _console())
    return 0


def _show_network(result: Result, findings: Findings, arguments: argparse.Namespace) -> int:
    content, words = result_as_dict(result), sentences(result, findings)
    if arguments.plot:
        drawing = network_drawing(result.network, content)
        _draw([drawing, charts.utilisation_bars(content)], result.network.name, words, arguments)
    if arguments.json:
        return _print_json({**content, "explanation": words, "findings": findings_as_dict(findings)})
    terminal.show_result(content, words, _console())
    return 0


def _sweep(described: Network, parameter: str, values: Sequence[float], arguments: argparse.Namespace) -> int:
    with Patience(f"along {parameter}", arguments.interrupt, len(values)) as patience:
        results = sweep(described, parameter, values, arguments.method, patience.report)
    rows = sweep_as_dicts(values, results)
    knee = knee_of(described) or knee_clients(results[-1]) if parameter == "clients" else None
    limits = sweep_bounds(described, parameter, values)
    if arguments.plot:
        figure = charts.sweep_chart(parameter, rows, limits, knee)
        _draw([figure], f"{described.name}, along {parameter}", (), arguments)
    if arguments.json:
        return _print_json(
            {
                "name": described.name,
                "parameter": parameter,
                "knee_clients": knee,
                "rows": rows,
                "bounds": limits,
            }
        )
    console = _console()
    console.print(f"\n[bold]{described.name}[/bold]", highlight=False)
    terminal.show_sweep(parameter, rows, console)
    if knee is not None:
        console.print(f"• The knee lies at {terminal.number(knee)} clients.")
    return 0


def _draw(
    figures: Sequence[ModelFigure], title: str, words: Sequence[str], arguments: argparse.Namespace
) -> None:
    write_figures(figures, arguments.plot, title, words, arguments.dark)
    Console(stderr=True, highlight=False).print(f"[dim]picture: {arguments.plot}[/dim]", soft_wrap=True)


def _print_json(content: Mapping[str, object]) -> int:
    print(json.dumps(content, indent=1, allow_nan=False))
    return 0


def _console() -> Console:
    return Console(highlight=False)
