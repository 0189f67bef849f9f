"""`waylab doctor --measure`: a null experiment of about a minute, and the smallest ratio that it can detect."""

import tempfile
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from waylab.analysis import analyse
from waylab.analysis.across.contrasts.noise import noise_floor
from waylab.cli.interrupt import Interrupt
from waylab.errors import LabError
from waylab.run import Step, create_run
from waylab.runfolder.trial import FAILED

METRICS = ("throughput_per_s", "response_mean_ns", "cpu_per_request_ns.total")
_SPEC = """
name = "noise"
question = "What is the smallest ratio that this machine can detect?"
hypothesis = "The same thing under two names does not differ."
refuted_by = [{{ metric = "failed_trials", above = 0 }}]
[system.backends]
count = 1
server = "embedded"
[system.proxy]
sample = 100
[load]
clients = 16
ratio = "1:19"
warm_up_s = 0.5
test_time_s = {test_time_s}
sample = 100
[factors.arm]
one = {{ kind = "proxy" }}
same = {{ kind = "proxy" }}
[design]
blocks = {blocks}
order = "mirrored"
seed = 17
[gates]
generator_cpu_max = 1.5
foreign_cpu_max = 1.0
steal_max = 1.0
interactive_law_max = 0.1
reason = "The experiment measures the effect of other programs and of steal time."
"""
_COMPARE = '[[compare]]\nfactor = "arm"\nbaseline = "one"\ncandidate = "same"\nmetric = "{metric}"\n'


def measure_noise(interrupt: Interrupt, blocks: int = 7, test_time_s: float = 3.0) -> int:
    """Run the null experiment in a temporary folder and print the result; return the exit code.

    Raises:
        LabError: if the program is not found or a trial fails.
    """
    console, progress = Console(highlight=False), Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="waylab-noise-") as name:
        spec = Path(name) / "noise.toml"
        text = _SPEC.format(blocks=blocks, test_time_s=test_time_s)
        spec.write_text(
            text + "".join(_COMPARE.format(metric=metric) for metric in METRICS), encoding="utf-8"
        )
        campaign = create_run(spec, Path(name) / "results")
        left_s = sum(trial.expected_s for trial in campaign.plan.trials)
        progress.print(
            f"measuring the noise of this machine: {len(campaign.plan.trials)} trials, {left_s:.0f} s"
        )

        def on_step(step: Step) -> None:
            interrupt.check()
            if step.result and step.result.status == FAILED:
                raise LabError(f"doctor: a trial failed: {step.result.reason}")

        campaign.run(on_step)
        content = analyse(campaign.directory)
    console.print(f"noise floor ({content.trials_used} of {content.trials_total} trials used):")
    for comparison in content.comparisons:
        found = noise_floor(comparison)
        console.print(f"  {escape(found.metric)}: {escape(found.text)}", soft_wrap=True)
    return 0 if content.trials_used else 1
