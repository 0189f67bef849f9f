"""What `waylab run --live` costs the measurement: trials with and without a page, interleaved; no limit is enforced.

    live_overhead.py                      # one open page, read by a small program
    live_overhead.py --browser            # one open page in Chromium

In every block, trials run without and with the page, and back again (ABBA). A closed loop without think time saturates
a proxy with one event loop, so what the page takes away is missing in the throughput. Prints the ratio of throughput,
mean response time and CPU time per request with its 95 % interval, and the CPU time of the page's process.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from waylab.analysis import analyse_trial
from waylab.analysis.statistics.pairs import log_ratios, paired_ratio
from waylab.cli.live import Live
from waylab.plan import Trial
from waylab.run import Campaign, Step, create_run
from waylab.run.trial import run_trial
from waylab.runfolder import paths
from waylab.testbed import Programs, Testbed, programs_of

sys.path.append(str(Path(__file__).parents[1] / "lab"))
sys.path.append(str(Path(__file__).parents[1]))

# The cost must certainly be below this share.
MARGIN = 0.01
# A trial for each place of a block; whether it has a page.
ORDER = (False, True, True, False)
SPEC = """
name = "live-overhead"
question = "What does a live page cost?"
hypothesis = "Less than 1 %."
refuted_by = [{{ metric = "failed_trials", above = 0 }}]
[system.backends]
count = 1
[system.proxy]
sample = 100
[load]
clients = 32
ratio = "1:9"
warm_up_s = 1.0
test_time_s = {test_time_s}
sample = 100
[factors]
clients = [32]
[design]
blocks = {trials}
seed = 1
"""
READER = "import sys, urllib.request\nfor line in urllib.request.urlopen(sys.argv[1] + 'events'): pass"
# Smaller is better, except for the throughput.
BETTER = {"throughput": 1, "mean response time": -1, "CPU time per request": -1}


def main() -> None:
    """Run the blocks and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--blocks", type=int, default=20, help="number of blocks of four trials [20]")
    parser.add_argument("--test-time", type=float, default=5.0, help="seconds that a trial measures [5]")
    parser.add_argument("--browser", action="store_true", help="open the page in Chromium")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waystage-live-") as folder, ExitStack() as stack:
        spec = Path(folder, "spec.toml")
        trials = arguments.blocks * len(ORDER)
        spec.write_text(SPEC.format(test_time_s=arguments.test_time, trials=trials), encoding="utf-8")
        campaign = create_run(spec, Path(folder, "results"))
        programs = programs_of(campaign.plan.trials)
        testbed = stack.enter_context(Testbed())
        figures: dict[str, list[list[float]]] = {name: [[], []] for name in BETTER}
        shares: list[float] = []
        for block in range(arguments.blocks):
            found: dict[str, list[list[float]]] = {name: [[], []] for name in BETTER}
            for place, with_page in enumerate(ORDER):
                trial = campaign.plan.trials[block * len(ORDER) + place]
                if with_page:
                    shares.append(measure_with_page(campaign, trial, programs, testbed, arguments.browser))
                else:
                    measure(campaign, trial, programs, testbed, None)
                for name, value in numbers(campaign.directory, trial).items():
                    found[name][with_page].append(value)
            for name, sides in found.items():
                for side, values in enumerate(sides):
                    figures[name][side].append(sum(values) / len(values))
            print(f"block {block + 1} of {arguments.blocks}", flush=True)
        for name, better in BETTER.items():
            print(f"{name}: {compared(*figures[name], better)}")
        share = sum(shares) / len(shares)
        print(
            f"CPU time of the page's process: {share:.2%} of one core, at most {max(shares):.2%} in a trial"
        )


def measure(
    campaign: Campaign, trial: Trial, programs: Programs, testbed: Testbed, live: Live | None
) -> None:
    """Run one trial, with a page or without."""
    testbed.live = live is not None
    directory = paths.trial_directory(campaign.directory, trial.id)

    def tick(spent_s: float, stage_metrics: object = None) -> None:
        if live:
            addresses = dict(stage_metrics) if isinstance(stage_metrics, dict) else {}
            live.show(Step(0, 1, trial, trial.expected_s - spent_s, stage_metrics=addresses), None)

    tick(0.0)
    outcome = run_trial(trial, programs, directory, testbed, tick)
    assert outcome.reason is None, outcome.reason


def measure_with_page(
    campaign: Campaign, trial: Trial, programs: Programs, testbed: Testbed, in_browser: bool
) -> float:
    """Run one trial with an open page; return the CPU time of the page's process as a share of one core."""
    with Live(campaign.directory, 0) as live, opened(live.address, in_browser):
        process = psutil.Process(live._process.pid)
        before, began_s = process.cpu_times(), time.monotonic()
        measure(campaign, trial, programs, testbed, live)
        after, took_s = process.cpu_times(), time.monotonic() - began_s
        return (after.user - before.user + after.system - before.system) / took_s


@contextmanager
def opened(address: str, in_browser: bool) -> Iterator[None]:
    """Keep the page open."""
    if in_browser:
        from browser import Browser  # noqa: PLC0415 # only with --browser

        with Browser() as browser:
            browser.open(address, ready="run")
            yield
        return
    reader = subprocess.Popen([sys.executable, "-c", READER, address])
    try:
        yield
    finally:
        reader.kill()
        reader.wait()


def numbers(directory: Path, trial: Trial) -> dict[str, float]:
    """Return what a trial measured: requests per second, and nanoseconds."""
    found = analyse_trial(directory, trial.id).content.measured()
    return {
        "throughput": found.throughput_per_s,
        "mean response time": found.operations["all"].response_mean_ns,
        "CPU time per request": found.cpu.cpu_per_request_ns["total"],
    }


def compared(without: list[float], with_page: list[float], better: int) -> str:
    """Return the means of both sides, and the ratio with its interval; one value for each block."""
    ratio = paired_ratio(log_ratios(without, with_page), MARGIN, better)
    means = [sum(values) / len(values) for values in (without, with_page)]
    interval = f"{ratio.low:.4f} to {ratio.high:.4f}" if ratio.low and ratio.high else ratio.reason
    shown = {True: "shown", False: "not shown"}.get(ratio.no_worse, "not judged")
    both = f"{means[0]:.4g} and {means[1]:.4g}, ratio {ratio.ratio:.4f} ({interval})"
    return f"{both}; worse by at most {MARGIN:.0%}: {shown}"


if __name__ == "__main__":
    main()
