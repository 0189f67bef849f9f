"""What message services and their load are told: commands and arguments. Starts nothing."""

import sys
from pathlib import Path

from waylab.plan import Trial
from waylab.testbed import canned
from waylab.testbed.generators import Generator


def service_command(program: Path, trial: Trial, address: str, database: str, records: Path) -> list[str]:
    """Return the command of `waystage messages`, which takes a free port and says which."""
    messages = trial.system.messages
    if messages.dispatch == "canned":
        return [sys.executable, str(Path(canned.__file__)), f"{address}:0"]
    command = [str(program), "messages", "--listen", f"{address}:0", "--dispatch", messages.dispatch]
    if database:
        command += ["--database", database]
    if messages.has_database:
        name = "--connections" if messages.dispatch == "pool" else "--lanes"
        command += [name, str(messages.connections_of_each())]
    return [*command, "--records", str(records), "--sample", str(trial.load.sample)]


def messages_load_options(trial: Trial, generator: Generator, index: int, addresses: list[str]) -> list[str]:
    """Return the arguments that make a load one of messages; generators begin with different services."""
    first = index % len(addresses)
    options = []
    for address in [*addresses[first:], *addresses[:first]]:
        options += ["--messages", f"http://{address}"]
    if trial.load.operations:
        options += ["--operations", trial.load.operations]
    if trial.load.prefill:
        options += ["--prefill", str(trial.load.prefill)]
    if not trial.system.messages.has_database:
        # What is sent there is lost.
        options += ["--no-verify"]
    return [*options, "--data-size", str(trial.load.data_size), "--seed", str(generator.seed), "--quiet"]
