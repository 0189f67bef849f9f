"""pgbench with the requests of a message service: its scripts and its command.

Each statement handles one message, as a program without the service would send it.
"""

import math
from pathlib import Path

from waylab.plan import Trial
from waylab.spec import mean_size_bytes

LOG_PREFIX = "pgbench"
QUEUES = 10
# The clock of --time runs while pgbench connects its clients, one after another. Each connection costs the server a
# process and its caches: some 10 ms of CPU, which on hosts at a time scale take as many times longer.
_CONNECT_S = 0.01
# The window begins with the first request, and pgbench accepts whole seconds only.
_LONGER_S = 0.2
# The settings that the service uses: planner statistics are useless for rows with a short life.
_OPTIONS = "-c enable_seqscan=off -c enable_bitmapscan=off -c plan_cache_mode=force_generic_plan"
_SEND = (
    "INSERT INTO message (id, queue_id, receiver, sender, body) "
    "VALUES (nextval('message_id'), :queue, {receiver}, 'c' || :client_id, decode(repeat('61', {bytes}), 'hex')) "
    "RETURNING id"
)
_PEEK = "SELECT id, sender, body FROM message WHERE queue_id = :queue AND receiver = '' ORDER BY id LIMIT 1"
_PEEK_FROM = "SELECT id, body FROM message WHERE receiver = '' AND sender = 'c' || :other ORDER BY id LIMIT 1"
_WAITING = (
    "SELECT name FROM queue WHERE EXISTS "
    "(SELECT FROM message AS m WHERE m.queue_id = queue.id AND m.receiver = 'c' || :client_id)"
)
_POP = (
    "DELETE FROM message WHERE ctid = (SELECT ctid FROM message WHERE queue_id = :queue AND receiver = {receiver} "
    "ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id, sender, body"
)
# Name of the file, operation, weight, statement. Of five requests one sends, one pops, and three only read: the queues
# with messages for the client, the head of a queue, a message by sender. Half of the messages have one receiver.
# `waystage load --operations d15` has the same mix in a fixed order.
SCRIPTS = (
    ("send", "send", 1, _SEND.replace("{receiver}", "''")),
    ("send-to", "send-to", 1, _SEND.replace("{receiver}", "'c' || :other")),
    ("waiting", "waiting", 2, _WAITING),
    ("peek", "peek", 2, _PEEK),
    ("peek-from", "peek-from", 2, _PEEK_FROM),
    ("pop", "pop", 1, _POP.replace("{receiver}", "''")),
    ("pop-mine", "pop", 1, _POP.replace("{receiver}", "'c' || :client_id")),
)
_QUEUES_MADE = f"INSERT INTO queue (name) SELECT 'q' || number FROM generate_series(1, {QUEUES}) AS number"
# Messages without a receiver, from clients in turn, to queues in turn.
_PREFILLED = (
    "INSERT INTO message (id, queue_id, receiver, sender, body) "
    f"SELECT nextval('message_id'), 1 + number % {QUEUES}, '', 'c' || number % {{clients}}, "
    "decode(repeat('61', {bytes}), 'hex') FROM generate_series(1, {messages}) AS number"
)


def preparation(trial: Trial) -> list[str]:
    """Return the statements that create the queues and their messages before the load."""
    filled = _PREFILLED.format(
        clients=trial.load.clients, bytes=_body_bytes(trial), messages=trial.load.prefill
    )
    return [_QUEUES_MADE, *([filled, "ANALYZE"] if trial.load.prefill else [])]


def write_scripts(directory: Path, trial: Trial) -> list[Path]:
    """Write a script for each request, and return them in the order of `SCRIPTS`."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = f"\\set queue random(1, {QUEUES})\n\\set other random(0, {trial.load.clients - 1})\n"
    paths = []
    for name, _, _, statement in SCRIPTS:
        paths.append(directory / f"{name}.sql")
        text = statement.replace("{bytes}", str(_body_bytes(trial)))
        paths[-1].write_text(f"{drawn}{text};\n", encoding="ascii")
    return paths


def pgbench_command(program: Path, trial: Trial, database: str, scripts: Path) -> list[str]:
    """Return the command: a closed loop of all clients for warm-up and measurement, every request logged."""
    load = trial.load
    command = [str(program), "--no-vacuum", "--protocol=prepared", f"--random-seed={trial.seed}"]
    command += [f"--client={load.clients}", f"--jobs={load.threads}"]
    connect_s = load.clients * _CONNECT_S * trial.time_scale
    command += [f"--time={math.ceil(load.warm_up_s + load.test_time_s + connect_s + _LONGER_S)}"]
    for path, (_, _, weight, _) in zip(write_scripts(scripts, trial), SCRIPTS, strict=True):
        command.append(f"--file={path}@{weight}")
    command += ["--log", f"--log-prefix={scripts / LOG_PREFIX}"]
    return [*command, f"{database} options='{_OPTIONS}'"]


def _body_bytes(trial: Trial) -> int:
    return round(mean_size_bytes(str(trial.load.data_size)))
