"""`waylab ab`: runs two versions or settings interleaved in one run, and returns the verdict as exit code."""

import argparse
import math
import shlex
from pathlib import Path

from rich.console import Console

from waylab.analysis.across.contrasts.versions import MARGIN, compare_arms
from waylab.cli.commands import conclude, minutes, run_campaign
from waylab.cli.exits import verdict_exit
from waylab.errors import LabError
from waylab.report import show_comparison, write_comparison
from waylab.run import Campaign, InterruptedRunError, create_run, resume_run
from waylab.runfolder.files import read_run, write_bytes
from waylab.spec import checks
from waylab.spec.arms import (
    BLOCKS_MIN,
    FACTOR,
    PROGRAM,
    A,
    Arm,
    B,
    arms_spec,
    default_metric,
    given_by,
    program_key,
    read_arm,
)


def ab(arguments: argparse.Namespace) -> int:
    """Interleave both sides, and print one ratio with its interval and the verdict."""
    console = Console(stderr=True, highlight=False)
    campaign, given = _resumed(arguments) if arguments.resume else _created(arguments)
    waiting = campaign.waiting()
    left = minutes(sum(trial.expected_s for trial in waiting))
    console.print(
        f"{given[0]} (a) against {given[1]} (b): {campaign.plan.trials[-1].block} mirrored blocks, "
        f"{len(waiting)} trials, about {left}",
        soft_wrap=True,
        markup=False,
    )
    try:
        run_campaign(campaign, console, arguments.interrupt)
    except InterruptedRunError:
        raise InterruptedRunError(
            f"stopped; continue with: waylab ab --resume {campaign.directory}"
        ) from None
    conclude(campaign.directory, console, summary=False)
    content = compare_arms(campaign.directory, FACTOR, given)
    page = write_comparison(content, arguments.output or campaign.directory)
    out = Console(highlight=False)
    show_comparison(content, out)
    out.print(f"{page}", soft_wrap=True, markup=False)
    return verdict_exit(content.verdict)


def _resumed(arguments: argparse.Namespace) -> tuple[Campaign, tuple[str, str]]:
    """Open a run of `waylab ab` that was stopped; its sides are those of its specification."""
    extra = [
        name
        for name in ("spec", "a", "b", "margin", "metric", "blocks", "test_time")
        if getattr(arguments, name)
    ]
    if extra:
        option = "a specification" if extra[0] == "spec" else f"--{extra[0].replace('_', '-')}"
        raise LabError(f"ab: --resume continues a run with its own settings; leave out {option}")
    run = read_run(arguments.resume, whole=True)
    levels = {
        level.label: level for factor in run.spec.factors if factor.name == FACTOR for level in factor.levels
    }
    if set(levels) != {A, B} or not any(one.factor == FACTOR for one in run.spec.compare):
        raise LabError(
            f"ab: {arguments.resume} is not a run of waylab ab; continue it with: waylab run --resume"
        )
    first, second = (given_by(levels[name].settings) for name in (A, B))
    return resume_run(arguments.resume), (first, second)


def _created(arguments: argparse.Namespace) -> tuple[Campaign, tuple[str, str]]:
    """Check the arguments, and create the run."""
    if arguments.spec is None:
        raise LabError(
            "ab: SPEC is missing; give a specification with --a and --b, or --resume with a run folder"
        )
    first, second = _sides(arguments)
    margin = MARGIN if arguments.margin is None else arguments.margin
    if not 0 < margin <= 1:
        raise LabError(f"ab: --margin must be above 0 and at most 1, not {margin:g}")
    if arguments.blocks is not None and arguments.blocks < BLOCKS_MIN:
        raise LabError(
            f"ab: --blocks {arguments.blocks} is too few to decide anything; give {BLOCKS_MIN} or more"
        )
    if arguments.test_time is not None and not 0 < arguments.test_time < math.inf:
        raise LabError(f"ab: --test-time must be above 0 and finite, not {arguments.test_time:g}")
    metrics = tuple(dict.fromkeys(arguments.metric or [default_metric(arguments.spec)]))
    for metric in metrics:
        try:
            checks.metric(metric)
        except ValueError as error:
            raise LabError(f"ab: --metric {metric}: {error}") from None
    options = {"blocks": arguments.blocks, "test_time_s": arguments.test_time}
    name, text = arms_spec(arguments.spec, (first, second), metrics, margin, options)
    path = _write(arguments.results, name, text)
    return create_run(path, arguments.results), (first.given, second.given)


def _sides(arguments: argparse.Namespace) -> tuple[Arm, Arm]:
    """Read both sides before anything runs."""
    for name, other in (("a", "b"), ("b", "a")):
        if getattr(arguments, name) is None:
            given = getattr(arguments, other)
            side = f" (--{other} {shlex.quote(given)} is only one side)" if given else ""
            raise LabError(
                f"ab: --{name} is missing{side}; give a binary, or a setting such as proxy.loops=2"
            )
    binary = any("=" not in given for given in (arguments.a, arguments.b))
    program = program_key(arguments.spec) if binary else PROGRAM
    return read_arm(arguments.a, "a", program), read_arm(arguments.b, "b", program)


def _write(results: Path, name: str, text: str) -> Path:
    """Write the specification beside the run folders, so that `waylab run` can repeat the run."""
    try:
        results.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{results}: cannot create a folder for the run: {error.strerror}") from None
    path = results / f"{name}.toml"
    write_bytes(path, text.encode())
    return path
