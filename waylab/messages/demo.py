"""`make demo-messages`: a private database, the service, messages, and where the time of each request went."""

import argparse
import json
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from waylab.messages.client import Client
from waylab.messages.message import Outgoing

QUEUE = "demo-orders"
LOAD_QUEUE = "demo-load"
BODY = b"x" * 200
STAGES = {
    "parse": "reading and parsing the request",
    "admit": "admission",
    "queue": "waiting for a lane",
    "send": "handing the statement to the connection",
    "backend": "the database, including the commit",
    "reply": "making the response",
    "total": "total time",
}


def main() -> None:
    """Run the demonstration to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", type=Path, help="the built `waystage`")
    parser.add_argument("--clients", type=int, default=32, help="concurrent clients")
    parser.add_argument("--load-s", type=float, default=5.0, help="seconds of load")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    command = [str(arguments.program), "messages", "--embedded", "--listen", "127.0.0.1:0"]
    console.print(f"[bold]$ {' '.join(command)}[/bold]")
    service = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = service.stdout.readline() if service.stdout else ""
        if not line:
            raise SystemExit(service.wait() or 1)
        console.print(line.strip())
        url = f"http://{line.split(' ')[4]}"
        show(console, url)
        load(console, url, arguments.clients, arguments.load_s)
        console.print(
            "\nThe data stay in .waystage/postgres. docs/messages.md has the interface and its guarantees."
        )
    finally:
        service.terminate()
        service.wait()


def show(console: Console, url: str) -> None:
    """Show each operation once, with its result."""
    with Client(url, sender="alice") as alice, Client(url, sender="bob") as bob:
        console.print(f"\n[bold]Queues and messages[/bold] ({url}/docs describes every operation)\n")
        outcome = "new" if alice.create_queue(QUEUE) else "existed"
        console.print(f"create queue {QUEUE}: {outcome}")
        console.print(f"alice sends to bob: message {alice.send(QUEUE, 'two apples', receiver='bob')}")
        batch = [Outgoing("three pears", "bob"), Outgoing(b"\x00\xff")]
        console.print(f"alice sends a batch: messages {alice.send_batch(QUEUE, batch)}")
        console.print(f"queues with messages for bob: {bob.waiting_queues('bob')}")
        if message := bob.peek(QUEUE, receiver="bob"):
            console.print(f"bob peeks: {message.body!r} from {message.sender}, and the message stays")
        if message := bob.receive(QUEUE, receiver="bob", lease_s=30):
            console.print(
                f"bob receives message {message.id} with a visibility timeout of 30 s, and acknowledges it"
            )
            bob.acknowledge(message.lease_token or "")
        while message := bob.pop(QUEUE, receiver="bob"):
            console.print(
                f"bob pops message {message.id}: {message.body!r} for {message.receiver or 'anyone'}"
            )
        times_ms = {stage: round(time_s * 1000, 3) for stage, time_s in bob.stage_times_s.items()}
        console.print(f"Server-Timing of the last pop, in ms: {json.dumps(times_ms)}")
        alice.delete_queue(QUEUE)


def load(console: Console, url: str, clients: int, load_s: float) -> None:
    """Run many clients at once, and show the time in each stage."""
    times_s: dict[str, dict[str, list[float]]] = {
        kind: {stage: [] for stage in STAGES} for kind in ("send", "pop")
    }
    with Client(url, sender="demo") as client:
        client.create_queue(LOAD_QUEUE)
    end_s = time.monotonic() + load_s

    def work(number: int) -> None:
        with Client(url, sender=f"client-{number}", timeout_s=60) as client:
            while time.monotonic() < end_s:
                client.send(LOAD_QUEUE, BODY)
                note(times_s["send"], client.stage_times_s)
                client.pop(LOAD_QUEUE)
                note(times_s["pop"], client.stage_times_s)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Client(url) as client:
        client.delete_queue(LOAD_QUEUE)
    number = sum(len(times["total"]) for times in times_s.values())
    console.print(
        f"\n[bold]{clients} clients for {load_s:g} s[/bold]: {number / load_s:,.0f} requests per second, each durable "
        "(limited by the clients, which are Python threads)\n"
    )
    table = Table("stage", "", *(f"{kind} {name}" for kind in times_s for name in ("median", "p99")))
    for column in table.columns[2:]:
        column.justify = "right"
    for stage, what in STAGES.items():
        cells = [np.quantile(times_s[kind][stage], share) * 1000 for kind in times_s for share in (0.5, 0.99)]
        table.add_row(stage, what, *(f"{cell:.3f}" for cell in cells))
    console.print(table)
    console.print("in milliseconds, from the header Server-Timing of every reply")


def note(all_times_s: dict[str, list[float]], times_s: dict[str, float]) -> None:
    """Add the times of one reply. Appending to a list is safe from several threads."""
    for stage, time_s in times_s.items():
        all_times_s[stage].append(time_s)


if __name__ == "__main__":
    main()
