"""Arguments of `waylab model`: one sub-command for each kind of model."""

import argparse
from pathlib import Path
from typing import Any

from waylab.cli.later import later
from waylab.cli.model.values import (
    at_least_zero,
    demands_s,
    not_negative,
    plot_file,
    positive_time_s,
    rate_per_s,
    share,
    sweep_values,
    time_s,
    whole,
)

_EXAMPLES = """examples:
  waylab model mm1 --arrivals 10294 --service 12900
  waylab model mmm --arrivals 18000 --service-time 1.2ms --servers 32
  waylab model mg1 --arrivals 500 --service-time 1ms --variation 4
  waylab model ggm --arrivals 900 --service-time 3ms --servers 4 --arrival-variation 2 --variation 0.5
  waylab model closed --clients 100 --servers 8 --service-time 4ms --think-time 10ms
  waylab model network experiments/models/three-tiers.json --plot three-tiers.html
  waylab model network experiments/models/three-tiers.json --sweep clients=1:200:10 --plot sweep.svg
  waylab model simulate experiments/models/replicated-writes.json --seed 1 --precision 0.02
  waylab model bounds --demands 0.02,0.08,0.08,0.06 --clients 6 --think-time 0
  waylab model usl measured.csv --plot usl.png

Times: a number of seconds, or with a unit as in 77.5us, 3ms, 2s. Rates: per second.
Variation: variance over squared mean; 0 is constant, 1 is exponential.
Every model: --json writes JSON to standard output, --plot writes a picture.
"""


def add_model_command(parts: Any) -> None:
    """Register `model` and its sub-commands."""
    model = parts.add_parser(
        "model",
        help="solve queueing models: queues, networks, bounds, simulation",
        description="Solve queueing models: queues, networks, bounds, simulation.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = model.add_subparsers(metavar="MODEL", required=True, parser_class=type(model))
    for name, text, add in (
        ("mm1", "one server, Poisson arrivals (with --capacity: room for K)", _mm1),
        ("mmm", "several servers, Poisson arrivals (with --capacity: room for K)", _mmm),
        ("mg1", "one server, any service time", _mg1),
        ("ggm", "several servers, any arrivals and service times (an approximation)", _ggm),
        ("closed", "clients that wait for each reply, at one station of servers", _closed),
        ("network", "a network of queues from a JSON file", _network),
        ("simulate", "the same network, simulated, with 95 %% intervals", _simulate),
        ("bounds", "upper and lower bounds of throughput and response time, from demands", _bounds),
        ("usl", "the Universal Scalability Law, fitted to measured throughput", _usl),
    ):
        part = kinds.add_parser(name, help=text, description=text.replace("%%", "%"))
        add(part)
        part.add_argument("--json", action="store_true", help="print JSON only")
        part.add_argument(
            "--plot", type=plot_file, metavar="FILE", help="write a picture: .svg, .png or .html"
        )
        part.add_argument("--dark", action="store_true", help="draw on a dark background")
        part.set_defaults(command=later("waylab.cli.model.commands", name))


def _mm1(part: argparse.ArgumentParser) -> None:
    _arrivals(part)
    _service(part)
    part.add_argument(
        "--capacity", type=whole, metavar="K", help="room for K requests, including the one in service"
    )


def _mmm(part: argparse.ArgumentParser) -> None:
    _mm1(part)
    part.add_argument("--servers", type=whole, required=True, metavar="M", help="number of servers")


def _mg1(part: argparse.ArgumentParser) -> None:
    _arrivals(part)
    _service(part)
    part.add_argument(
        "--variation",
        type=at_least_zero,
        default=1.0,
        metavar="C2",
        help="squared variation of the service time [1]",
    )


def _ggm(part: argparse.ArgumentParser) -> None:
    _mg1(part)
    part.add_argument("--servers", type=whole, default=1, metavar="M", help="number of servers [1]")
    part.add_argument(
        "--arrival-variation",
        type=at_least_zero,
        default=1.0,
        metavar="C2",
        help="squared variation of the time between arrivals [1]",
    )


def _closed(part: argparse.ArgumentParser) -> None:
    part.add_argument("--clients", type=whole, required=True, metavar="N", help="number of clients")
    part.add_argument("--servers", type=whole, default=1, metavar="M", help="number of servers [1]")
    _service(part)
    part.add_argument(
        "--think-time",
        type=time_s,
        default=0.0,
        metavar="TIME",
        help="time between a reply and the client's next request [0]",
    )


def _network(part: argparse.ArgumentParser) -> None:
    part.add_argument("file", type=Path, metavar="FILE", help="a model, see docs/model-format.md")
    part.add_argument(
        "--method",
        default="auto",
        help="a solver by name [auto: the most exact one that can handle the model]",
    )
    part.add_argument(
        "--clients", metavar="N", help="replaces the number in the file; FIRST..LAST solves for each number"
    )
    part.add_argument(
        "--sweep",
        type=sweep_values,
        metavar="WHAT=FIRST:LAST:STEP",
        help="clients, STATION.servers, STATION.service (a factor), CLASS.population, CLASS.arrivals_per_s, "
        "CLASS.think_s or POOL.slots; also WHAT=1,2,4,8",
    )


def _simulate(part: argparse.ArgumentParser) -> None:
    part.add_argument("file", type=Path, metavar="FILE", help="a model, see docs/model-format.md")
    part.add_argument("--clients", type=whole, metavar="N", help="replaces the number in the file")
    part.add_argument("--seed", type=not_negative, help="the same seed gives the same numbers [1]")
    part.add_argument("--replications", type=whole, metavar="N", help="independent runs [20]")
    part.add_argument(
        "--requests",
        type=whole,
        metavar="N",
        help="requests measured in each replication [200000, or more near saturation]",
    )
    part.add_argument(
        "--precision",
        type=share,
        metavar="SHARE",
        help="add replications until the half-width of each mean response time is below this share of it, such as 0.01",
    )
    part.add_argument("--explain", action="store_true", help="also simulate the effect of changes")


def _bounds(part: argparse.ArgumentParser) -> None:
    part.add_argument("file", type=Path, nargs="?", metavar="FILE", help="a model of one closed class")
    part.add_argument(
        "--demands",
        type=demands_s,
        metavar="TIME,TIME,...",
        help="demand of each station: its visits times its service time",
    )
    part.add_argument("--clients", type=whole, metavar="N", help="number of clients")
    part.add_argument(
        "--think-time",
        type=time_s,
        metavar="TIME",
        help="time between a reply and the client's next request [0]",
    )


def _usl(part: argparse.ArgumentParser) -> None:
    part.add_argument(
        "file",
        type=Path,
        metavar="FILE.csv",
        help="columns clients and throughput_per_s; optionally run",
    )


def _arrivals(part: argparse.ArgumentParser) -> None:
    part.add_argument(
        "--arrivals", type=rate_per_s, required=True, metavar="RATE", help="requests per second"
    )


def _service(part: argparse.ArgumentParser) -> None:
    either = part.add_mutually_exclusive_group(required=True)
    either.add_argument(
        "--service", type=rate_per_s, metavar="RATE", help="requests per second of one server"
    )
    either.add_argument("--service-time", type=positive_time_s, metavar="TIME", help="mean service time")
