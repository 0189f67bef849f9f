"""Arguments, errors and exit codes: 0 success, 1 no usable trial, 2 bad input, 130 interrupted."""

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Never, TypeVar

from waylab.cli.fit.arguments import add_fit_commands
from waylab.cli.importing.arguments import add_import_command
from waylab.cli.interrupt import Interrupt
from waylab.cli.later import later
from waylab.cli.model.arguments import add_model_command
from waylab.cli.report_arguments import add_report_commands
from waylab.cli.validate.arguments import add_validate_command
from waylab.errors import LabError
from waylab.run import InterruptedRunError
from waylab.spec import FULL, QUICK, SCALES
from waylab.version import __version__

N = TypeVar("N", int, float)

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
# The most characters of a path in an error.
_NAME_MAX = 200

_COMMANDS = "waylab.cli.commands"


class _Parser(argparse.ArgumentParser):
    """Prints a wrong argument in one line, like every other error."""

    def error(self, message: str) -> Never:
        self.exit(EXIT_BAD_INPUT, f"waylab: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parsed = _parser().parse_args(arguments)
    interrupt = Interrupt()
    parsed.interrupt = interrupt
    # Otherwise SIGTERM would end the lab at once, and the kernel would kill the processes of the trial.
    previous = {number: signal.signal(number, interrupt.handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        return int(parsed.command(parsed))
    except InterruptedRunError as error:
        print(f"waylab: {error}", file=sys.stderr)
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        print("waylab: stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except LabError as error:
        print(f"waylab: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        # The reader of our output has seen enough.
        sys.stderr.close()
        return 0
    except OSError as error:
        # A path that no check of its own has refused, for example one that is too long.
        name = str(error.filename or "")[:_NAME_MAX]
        print(f"waylab: {name}: {error.strerror or error}".replace(": : ", ": "), file=sys.stderr)
        return EXIT_BAD_INPUT
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="waylab",
        description="Runs experiments on memcached proxies and message services, analyses and reports the results.",
    )
    parser.add_argument("--version", action="version", version=f"waylab {__version__}")
    parts = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    _add_demo(parts)

    run = parts.add_parser("run", help="run an experiment, analyse it and write its report")
    run.add_argument(
        "spec",
        type=Path,
        nargs="?",
        metavar="SPEC",
        help="specification of an experiment, a TOML file; or demo, the demonstration, or smoke, a shorter one",
    )
    run.add_argument("--resume", type=Path, metavar="RUN", help="continue a run that was stopped")
    run.add_argument(
        "--repeat",
        action="store_true",
        help="measure a trial again, at most twice, if other programs disturbed it",
    )
    run.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="parent of run folders [results]"
    )
    _add_live(run)
    _add_scale(run)
    run.set_defaults(command=later(_COMMANDS, "run"))

    _add_ab(parts)

    plan = parts.add_parser(
        "plan", help="show the trials of a specification and their duration; runs nothing"
    )
    plan.add_argument("spec", type=Path, metavar="SPEC", help="specification of an experiment, a TOML file")
    _add_scale(plan)
    plan.set_defaults(command=later(_COMMANDS, "plan"))

    doctor = parts.add_parser("doctor", help="show which features this machine supports; changes nothing")
    doctor.add_argument(
        "--measure",
        action="store_true",
        help="also run a null experiment of one minute, and show the smallest ratio that can be detected",
    )
    doctor.set_defaults(command=later(_COMMANDS, "doctor"))

    calibrate = parts.add_parser(
        "calibrate",
        help="measure the emulated hosts of a specification, and recommend a time scale",
        description="Builds the emulated hosts of a specification, measures links, delays and CPU shares, and compares "
        "each with its target. Exit code: 0 all within 3 %, 1 not all, 2 bad input.",
    )
    calibrate.add_argument(
        "spec", type=Path, metavar="SPEC", help="specification of an experiment, a TOML file"
    )
    calibrate.add_argument(
        "--time-scale", type=_time_scale, metavar="N", help="time scale instead of the specification's"
    )
    calibrate.set_defaults(command=later("waylab.cli.calibrate", "run"))

    _add_study(parts)

    for name, command, text in (
        (
            "analyse",
            later(_COMMANDS, "analyse"),
            "write analysis.json and predictions.json of a run folder again",
        ),
        ("show", later(_COMMANDS, "show"), "print the main figures of a run"),
    ):
        part = parts.add_parser(name, help=text)
        part.add_argument("run", type=Path, metavar="RUN", help="a run folder, for example results/TIME-NAME")
        part.set_defaults(command=command)
    add_import_command(parts)
    add_report_commands(parts)
    add_model_command(parts)
    add_fit_commands(parts)
    add_validate_command(parts)
    _describe(parts)
    return parser


def _describe(parts: Any) -> None:
    """Begin the help of a command without a description with its text in the list of commands."""
    for listed in parts._choices_actions:
        part = parts.choices[listed.dest]
        text = listed.help.replace("%%", "%")
        part.description = part.description or f"{text[0].upper()}{text[1:]}."


def _add_demo(parts: Any) -> None:
    part = parts.add_parser(
        "demo",
        help="measure a proxy in front of three servers for two minutes, and write a report",
        description="Starts a proxy, three servers and a load generator on this machine, measures them for about two "
        "minutes, and writes a report with the time of each stage. The same as `waylab run demo`.",
    )
    part.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="parent of run folders [results]"
    )
    _add_live(part)
    part.set_defaults(
        command=later(_COMMANDS, "run"), spec=Path("demo"), resume=None, repeat=False, scale=FULL
    )


def _add_ab(parts: Any) -> None:
    part = parts.add_parser(
        "ab",
        help="run two versions or settings interleaved in one run, and give a verdict",
        description="Runs a specification with two sides, a (old) and b (new), in mirrored blocks (ABBA), and prints "
        "the ratio b / a with its interval and a verdict. A side is the path of a binary, or settings such "
        "as proxy.loops=2. The load generator is the same for both. "
        "Exit code: 0 not worse, 1 worse, 2 bad input, 3 undecided.",
    )
    part.add_argument(
        "spec", type=Path, nargs="?", metavar="SPEC", help="specification of an experiment, a TOML file"
    )
    part.add_argument("--resume", type=Path, metavar="RUN", help="continue a run of ab that was stopped")
    part.add_argument("--a", metavar="SIDE", help="the old side: a binary, or settings KEY=VALUE,...")
    part.add_argument("--b", metavar="SIDE", help="the new side: a binary, or settings KEY=VALUE,...")
    part.add_argument(
        "--margin", type=float, metavar="SHARE", help="largest loss that is no worse, as a share [0.05]"
    )
    part.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="metric to compare; repeat it for several [throughput_per_s; response_mean_ns in an open loop]",
    )
    part.add_argument(
        "--blocks", type=int, metavar="N", help="blocks, each with both sides; an even number [at least 6]"
    )
    part.add_argument(
        "--test-time",
        type=float,
        metavar="SECONDS",
        help="length of a trial's measurement [the specification's]",
    )
    part.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="parent of run folders [results]"
    )
    part.add_argument(
        "--output", type=Path, metavar="DIR", help="folder for compare.json and compare.html [the run folder]"
    )
    part.set_defaults(command=later("waylab.cli.ab", "ab"))


def _add_study(parts: Any) -> None:
    part = parts.add_parser(
        "study",
        help="run all experiments of a study, and write a table of its findings",
        description="Runs every experiment of a study that is not measured yet, and writes a table of all findings. "
        "The same command continues a study that was stopped, and measures trials again that other programs disturbed. "
        "Exit code: 0 success, 1 no usable trial in an "
        "experiment, 2 bad input, 130 interrupted.",
    )
    part.add_argument("study", type=Path, nargs="+", metavar="STUDY", help="files of experiments/studies")
    part.add_argument("--plan", action="store_true", help="show experiments and durations; run nothing")
    part.add_argument(
        "--findings", action="store_true", help="run nothing; judge the findings by the runs that exist"
    )
    part.add_argument(
        "--blocks",
        type=_blocks,
        metavar="N",
        help="run more blocks of each experiment until all its runs together have N",
    )
    part.add_argument(
        "--document", type=Path, metavar="DIR", help="write a page for each study into DIR, and their list"
    )
    part.add_argument("--time-scale", type=_time_scale, metavar="N", help="time scale instead of the study's")
    part.add_argument(
        "--results",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="parent of the study's folder [results]",
    )
    _add_scale(part)
    part.set_defaults(command=later("waylab.cli.study.command", "run"))


def _blocks(text: str) -> int:
    return _to_1000(int, text, "a whole number from 1 up to 1000")


def _time_scale(text: str) -> float:
    return _to_1000(float, text, "a number from 1 up to 1000")


def _to_1000(kind: Callable[[str], N], text: str, wanted: str) -> N:
    try:
        value = kind(text)
    except ValueError:
        value = kind("0")
    if not 1 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} should be {wanted}")
    return value


def _add_live(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--live",
        action="store_true",
        help="serve a page on 127.0.0.1 that shows the run while it runs, and print its address",
    )
    parser.add_argument(
        "--live-port",
        type=_port,
        metavar="PORT",
        help="port of the page of --live [any free one]",
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} should be a port, from 0 (any free one) up to 65535")
    return int(text)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--scale",
        choices=SCALES,
        default=FULL,
        help="full: the specification unchanged; quick: its [scale.quick], or one short block without it [full]",
    )
    either.add_argument(
        "--quick", dest="scale", action="store_const", const=QUICK, help="short for --scale quick"
    )
