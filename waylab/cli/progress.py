"""The progress bar of a run, and one line for each finished trial. It has no thread; the caller updates it."""

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
from rich.progress import Progress as Bar

from waylab.run import Step
from waylab.runfolder.stopping import BlockDecision

Judge = Callable[[str], tuple[bool, str, str]]


class Progress:
    """A bar on terminals; elsewhere only the lines."""

    def __init__(self, console: Console, total: int, judge: Judge) -> None:
        self._console = console
        self._judge = judge
        self._bar: Bar | None = None
        if console.is_terminal:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]} left"),
                console=console,
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task("trials", total=total, left="")

    def __enter__(self) -> "Progress":
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def show(self, step: Step) -> None:
        """Update the bar, and print a line for a finished trial."""
        if step.result is not None:
            self._line(step)
        if self._bar:
            minutes, seconds = divmod(round(step.left_s), 60)
            self._bar.update(
                self._task,
                total=step.total,
                completed=step.done,
                description=step.trial.configuration,
                left=f"{minutes}:{seconds:02}",
            )
            self._bar.refresh()

    def show_decision(self, decision: BlockDecision) -> None:
        """Print the decision of the stopping rule after a block."""
        self._console.print(f"[dim]{_plain(decision_text(decision))}[/dim]", soft_wrap=True)

    def _line(self, step: Step) -> None:
        used, headline, reasons = self._judge(step.trial.id)
        mark = "[green]passed[/green]" if used else "[bold red]FAILED[/bold red]"
        text = f"{mark} {step.done:>3}/{step.total} block {step.trial.block} {step.trial.configuration} {headline}"
        self._console.print(text + (f" [red]{_plain(reasons)}[/red]" if reasons else ""), soft_wrap=True)


def decision_text(decision: BlockDecision) -> str:
    """Write the decision of the stopping rule after a block."""
    verb = "stops" if decision.stop else "continues"
    forecast = decision.blocks_expected
    more = f"; about {forecast} blocks in all" if forecast and not decision.stop else ""
    return f"block {decision.block}: {verb}, {decision.reason}{more}"


def _plain(text: str) -> str:
    """Escape square brackets, which are markup."""
    return text.replace("[", "\\[")
