"""Divides one load between several generators: each client and each key belongs to one of them. Starts nothing."""

from dataclasses import dataclass

from waylab.plan import Trial
from waylab.runfolder import paths
from waylab.spec import Load


@dataclass(frozen=True)
class Generator:
    """The part of the load that one process generates."""

    name: str
    summary: str
    clients: int
    key_minimum: int
    key_maximum: int
    seed: int
    # Requests per second of an open loop; 0 for a closed one.
    rate_per_s: float = 0.0


def value_options(load: Load) -> list[str]:
    """Return the arguments for keys and values, which the prefill and the load share."""
    options = ["--data-size", str(load.data_size), "--protocol", load.protocol]
    return [*options, "--key-size", str(load.key_size)] if load.key_size != "" else options


def key_and_pace_options(load: Load, generator: Generator) -> list[str]:
    """Return the arguments for the times of requests and for the distribution of their keys."""
    return ["--key-pattern", load.key_pattern, *pace_options(load, generator)]


def pace_options(load: Load, generator: Generator) -> list[str]:
    """Return the arguments for the times of requests."""
    if generator.rate_per_s:
        return ["--rate", f"{generator.rate_per_s:.6g}", "--arrivals", load.arrivals]
    return ["--think-time", load.think_time]


def generators(trial: Trial) -> list[Generator]:
    """Divide clients and keys evenly. No two generators write the same key, so that each can verify its own values."""
    load, count = trial.load, trial.assignment.generators
    keys = _parts(load.key_maximum - load.key_minimum + 1, count)
    clients = _parts(load.clients, count)
    found = []
    for index in range(count):
        first = load.key_minimum + sum(keys[:index])
        found.append(
            Generator(
                name="load" if count == 1 else f"load-{index}",
                summary=paths.LOAD if count == 1 else paths.part_of_load(index),
                clients=clients[index],
                key_minimum=first,
                key_maximum=first + keys[index] - 1,
                seed=(trial.seed + 104_729 * index) % (1 << 31),
                rate_per_s=load.rate * clients[index] / load.clients,
            )
        )
    return found


def _parts(total: int, count: int) -> list[int]:
    """Cut a number into whole parts that differ by at most one."""
    return [total // count + (index < total % count) for index in range(count)]
