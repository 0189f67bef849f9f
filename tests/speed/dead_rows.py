"""Pops from a queue of a million messages whose rows an old snapshot keeps alive: run by `make bench-messages`.

A queue is filled with a million messages, and a single client pops for a while. Then a transaction keeps a snapshot
open, SQL deletes 950 000 of the messages at once without the service's knowledge, and the client pops again. The goal
is pops within twice their normal time. pgmq's SQL, in the same database and behind the same HTTP, is measured too.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from messages import PEERS, System, started

MESSAGES = 1_000_000
LEFT = 50_000
SECONDS = 4.0
FILLED_WITHIN_S = 300.0
WANTED = 2.0


def main() -> None:
    """Print the times before, with dead rows at first, and with dead rows later."""
    arguments = argparse.Namespace(service=[], without=["pool", "plain", "beanstalkd"])
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ws-")))
        folder.chmod(0o755)
        systems = stack.enter_context(started(arguments, folder))
        peers = next((system for system in systems if system.talk != "service"), None)
        if peers is None:
            sys.exit("bench-messages: without a peer there is no connection for the snapshot")
        print(f"{MESSAGES} messages, of which all but {LEFT} are deleted while an old snapshot is open")
        for system in systems:
            one(system, peers.address)


def one(system: System, holder: str) -> None:
    """Measure one system."""
    ask(holder, f"fill {system.talk} {MESSAGES}")
    pop(system, 1.0)
    normal = pop(system, SECONDS)
    ask(holder, "hold")
    ask(holder, f"empty {system.talk} {LEFT}")
    first = pop(system, SECONDS)
    later = pop(system, SECONDS)
    ask(holder, "release")
    ask(holder, f"empty {system.talk} 0")
    print(
        f"{system.name}: a lone client's pop takes, p50 and p99 in ms, and there are so many in {SECONDS} s:"
    )
    for label, seen in (("normally", normal), ("the first with dead rows", first), ("after these", later)):
        print(f"  {label}: {seen['p50_ms']:.2f}, {seen['p99_ms']:.2f}, {seen['messages']}")
    ratio = later["p50_ms"] / normal["p50_ms"]
    print(f"  ratio of the medians: {ratio:.2f}, wanted {WANTED} at most")


def pop(system: System, seconds: float) -> dict[str, Any]:
    """Pop with a single client for this many seconds."""
    command = [str(PEERS), "drive", system.address, f"{system.talk}:pop", "1", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"bench-messages: {system.name}: {done.stderr.strip()}")
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def ask(holder: str, words: str) -> None:
    """Change the tables."""
    request = urllib.request.Request(f"http://{holder}/dead", data=words.encode(), method="POST")
    with urllib.request.urlopen(request, timeout=FILLED_WITHIN_S):
        pass


if __name__ == "__main__":
    main()
