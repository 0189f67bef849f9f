"""Function 1 of docs/life-of-an-experiment.md: the steps of each command."""

import argparse
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from waylab.analysis import analyse as analyse_run
from waylab.cli.block_rule import TrialJudge, least_blocks
from waylab.cli.interrupt import Interrupt
from waylab.cli.live import Live
from waylab.cli.noise import measure_noise
from waylab.cli.progress import Progress, decision_text
from waylab.cli.shipped import shipped
from waylab.errors import LabError
from waylab.plan import Plan, make_plan
from waylab.predict import check_models, predict
from waylab.report import show_run, write_report
from waylab.run import Campaign, Step, create_run, resume_run, unfinished_runs
from waylab.runfolder.gate_words import reasons_words
from waylab.runfolder.stopping import BlockDecision
from waylab.spec import FULL, Spec, read_spec
from waylab.testbed import Machine, check_requirements

EXIT_NOTHING_USABLE = 1


def run(arguments: argparse.Namespace) -> int:
    """Run trials, then analyse, predict and report."""
    if arguments.spec is None and arguments.resume is None:
        raise LabError(
            "run: no specification is given; "
            "`waylab demo` measures a proxy for about two minutes and writes a report"
        )
    if arguments.spec and arguments.resume:
        raise LabError(
            f"run: {arguments.spec} and --resume are given; give either a specification or --resume"
        )
    if arguments.live_port is not None and not arguments.live:
        raise LabError(f"run: --live-port {arguments.live_port} is given without --live; add --live")
    if arguments.spec:
        arguments.spec = shipped(arguments.spec)
    console = Console(stderr=True, highlight=False)
    if arguments.resume:
        campaign = resume_run(arguments.resume)
    else:
        # Errors of the specification come before all others.
        _read(arguments.spec)
        for old in unfinished_runs(arguments.results, arguments.spec):
            console.print(f"[dim]an unfinished run of this specification: waylab run --resume {old}[/dim]")
        campaign = create_run(arguments.spec, arguments.results, arguments.scale)
    waiting = campaign.waiting()
    left = minutes(sum(trial.expected_s for trial in waiting))
    about = "at most" if campaign.spec.stopping.precision else "about"
    console.print(f"run folder: {campaign.directory} ({len(waiting)} trials, {about} {left})", soft_wrap=True)
    for line in [*campaign.servers(), *campaign.hosts()]:
        console.print(line, soft_wrap=True)
    console.print(f"[dim]if it is stopped: waylab run --resume {campaign.directory}[/dim]", soft_wrap=True)

    if not arguments.live:
        run_campaign(campaign, console, arguments.interrupt, arguments.repeat)
        return conclude(campaign.directory, console)
    with Live(campaign.directory, arguments.live_port or 0) as live:
        console.print(f"live page: {live.address}", soft_wrap=True)
        run_campaign(campaign, console, arguments.interrupt, arguments.repeat, live)
        return conclude(campaign.directory, console, live=live)


def run_campaign(
    campaign: Campaign,
    console: Console,
    interrupt: Interrupt,
    repeat: bool = False,
    live: Live | None = None,
) -> None:
    """Run the missing trials of a run folder, with a line for each; `repeat` runs disturbed trials again.

    A `live` page shows the same as the lines, and the running trial.
    """
    judge = TrialJudge(campaign.directory, campaign.spec.stopping)

    def judged(trial_id: str) -> tuple[bool, str, str]:
        trial = judge.trial(trial_id, anew=True)
        headline = f"{trial.numbers.throughput_per_s:,.0f} requests/s" if trial.numbers else ""
        return trial.used, headline, reasons_words(trial.reasons)

    with Progress(console, len(campaign.plan.trials), judged) as progress:

        def decide(block: int, elapsed_s: float) -> BlockDecision:
            decision = judge.decide(block, elapsed_s)
            progress.show_decision(decision)
            if live:
                live.note(decision_text(decision))
            return decision

        def on_step(step: Step) -> None:
            interrupt.check()
            progress.show(step)
            if live:
                live.show(step, judge.trial(step.trial.id) if step.result else None)

        disturbed = judge.disturbed if repeat else _never
        campaign.run(on_step, decide, disturbed, live=live is not None)


def _never(trial_id: str) -> list[str]:
    """Return no reason to run a trial again."""
    return []


def _read(path: Path, scale: str = FULL) -> Spec:
    """Read a specification; the names of models in its rules are known only here."""
    spec = read_spec(path, scale)
    try:
        check_models(rule.model for rule in spec.refuted_by)
    except LabError as error:
        raise LabError(f"{path}: {error}") from None
    return spec


def plan(arguments: argparse.Namespace) -> int:
    """Show the plan."""
    spec = _read(shipped(arguments.spec), arguments.scale)
    planned = make_plan(spec)
    console = Console(highlight=False)
    console.print(f"[bold]{escape(spec.name)}[/bold]  {escape(spec.question)}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, side in (
        ("order", "right"),
        ("block", "right"),
        ("configuration", "left"),
        ("seed", "right"),
        ("seconds", "right"),
    ):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for trial in planned.trials:
        table.add_row(
            str(trial.order),
            str(trial.block),
            trial.configuration,
            str(trial.seed),
            f"{trial.expected_s:.1f}",
        )
    console.print(table)
    console.print(_how_long(spec, planned))
    # After the plan, because the plan is useful even if it will run on another machine.
    check_requirements(spec.testbed, planned.trials, Machine())
    return 0


def _how_long(spec: Spec, planned: Plan) -> str:
    """Return the number and the duration of trials; with a stopping rule the smallest and the largest."""
    if not spec.stopping.precision:
        return f"{len(planned.trials)} trials, about {minutes(planned.expected_s)}"
    least = [trial for trial in planned.trials if trial.block <= least_blocks(spec.stopping)]
    least_s = sum(trial.expected_s for trial in least)
    text = (
        f"at least {len(least)} trials, about {minutes(least_s)}; "
        f"at most {len(planned.trials)}, about {minutes(planned.expected_s)}"
    )
    if spec.stopping.budget_s:
        text += f"; no block starts after {minutes(spec.stopping.budget_s)}"
    return text


def doctor(arguments: argparse.Namespace) -> int:
    """Print which features this machine supports."""
    console = Console(highlight=False)
    marks = {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[dim]–[/dim]"}
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("feature", "supported", "details"):
        table.add_column(heading)
    for finding in Machine().findings():
        table.add_row(finding.name, marks[finding.able], escape(finding.text))
    console.print(table)
    return measure_noise(arguments.interrupt) if arguments.measure else 0


def analyse(arguments: argparse.Namespace) -> int:
    """Analyse and predict."""
    content = analyse_run(arguments.run)
    predict(arguments.run)
    Console(highlight=False).print(
        f"{content.trials_used} of {content.trials_total} trials used: "
        f"{arguments.run}/analysis.json, predictions.json",
        soft_wrap=True,
    )
    return 0 if content.trials_used else EXIT_NOTHING_USABLE


def show(arguments: argparse.Namespace) -> int:
    """Show the run in the terminal."""
    show_run(arguments.run, Console(highlight=False))
    return 0


def conclude(directory: Path, console: Console, summary: bool = True, live: Live | None = None) -> int:
    """Analyse, predict and report a run; return the exit code. `summary` prints the results."""

    def announce(text: str) -> None:
        console.print(f"[dim]{text}[/dim]")
        if live:
            live.note(text)

    announce("analysing")
    content = analyse_run(directory)
    predict(directory)
    announce("drawing")
    write_report(directory)
    if summary:
        show_run(directory, Console(highlight=False))
    if not content.trials_used:
        console.print(
            "[bold red]no trial passed its gates; the report shows the reasons and no aggregates[/bold red]"
        )
        return EXIT_NOTHING_USABLE
    return 0


def minutes(time_s: float) -> str:
    """Write a duration in minutes and seconds."""
    minutes, seconds = divmod(round(time_s), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
