"""Solve one model with LINE 3 (package `line-solver`): the peer of tests/speed/layered_models.py.

Reads a model as JSON from standard input and prints throughput, response time and CPU seconds as JSON. It runs in a
virtual environment of LINE's own, because LINE pins other versions of the packages than the lab.
"""

import json
import resource
import sys
import time

from line_solver import (
    LN,
    MVA,
    ClosedClass,
    Delay,
    Exp,
    Fork,
    GlobalConstants,
    Immediate,
    Join,
    Network,
    Queue,
    SchedStrategy,
    VerboseLevel,
)
from line_solver.layered import Activity, ActivityPrecedence, Entry, LayeredNetwork, Processor, Task


def main() -> None:
    """Solve the model of standard input, after a small one that loads whatever LINE loads late."""
    GlobalConstants.set_verbose(VerboseLevel.SILENT)
    drawn = json.load(sys.stdin)
    solver = layered if drawn["slots"] else fork_join
    solver(drawn | {"clients": 1, "slots": 1, "servers": [[0.001, 1], [0.001, 1]]})
    begun_s = time.process_time()
    # The kernel ends a longer solution with SIGXCPU.
    limit_s = round(begun_s + float(sys.argv[1])) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    solved = solver(drawn)
    print(json.dumps(solved | {"cpu_s": time.process_time() - begun_s}))


def layered(drawn: dict) -> dict:
    """A layered queueing network: clients call the CPU, then a task with one thread for each slot."""
    endless = float("inf")
    model = LayeredNetwork("drawn")
    outside = Processor(model, "outside", endless, SchedStrategy.INF)
    clients = Task(model, "clients", drawn["clients"], SchedStrategy.REF).on(outside)
    clients.set_think_time(Exp.fit_mean(drawn["think_s"]))
    request = Entry(model, "request").on(clients)
    cores = Processor(model, "cores", drawn["cores"], SchedStrategy.PS)
    cpu = called(model, "cpu", Task(model, "cpu", endless, SchedStrategy.INF).on(cores), drawn["cpu_s"])
    workers = Processor(model, "workers", endless, SchedStrategy.INF)
    pool = Task(model, "pool", drawn["slots"], SchedStrategy.FCFS).on(workers)
    held = Entry(model, "held").on(pool)
    entries = []
    for number, (service_s, servers) in enumerate(drawn["servers"]):
        processor = Processor(model, f"processor {number}", servers, SchedStrategy.FCFS)
        task = Task(model, f"server {number}", servers, SchedStrategy.FCFS).on(processor)
        entries.append(called(model, f"server {number}", task, service_s))
    first = Activity(model, "take a slot", Immediate()).on(pool).bound_to(held)
    if drawn["fork"]:
        legs = [
            Activity(model, f"leg {number}", Immediate()).on(pool).synch_call(entry, 1)
            for number, entry in enumerate(entries)
        ]
        last = Activity(model, "release the slot", Immediate()).on(pool).replies_to(held)
        pool.add_precedence(ActivityPrecedence.AndFork(first, legs))
        pool.add_precedence(ActivityPrecedence.AndJoin(legs, last))
    else:
        for entry in entries:
            first.synch_call(entry, 1)
        first.replies_to(held)
    Activity(model, "send", Immediate()).on(clients).bound_to(request).synch_call(cpu, 1).synch_call(held, 1)
    table = LN(model, MVA, verbose=False).avg_table()
    per_s = float(table[table.Node == "clients"].Tput.values[0])
    response_s = float(table[table.Node == "request"].RespT.values[0])
    return {"throughput_per_s": per_s, "response_s": response_s}


def called(model: LayeredNetwork, name: str, task: Task, service_s: float) -> Entry:
    """The entry of a task that only serves."""
    entry = Entry(model, f"{name} entry").on(task)
    Activity(model, f"{name} serves", Exp.fit_mean(service_s)).on(task).bound_to(entry).replies_to(entry)
    return entry


def fork_join(drawn: dict) -> dict:
    """A closed network: clients think, then one leg goes to each server."""
    model = Network("drawn")
    think = Delay(model, "think")
    fork = Fork(model, "fork")
    join = Join(model, "join", fork)
    job = ClosedClass(model, "request", drawn["clients"], think)
    think.set_service(job, Exp.fit_mean(drawn["think_s"]))
    routes = model.init_routing_matrix()
    routes.set(job, job, think, fork, 1.0)
    for number, (service_s, servers) in enumerate(drawn["servers"]):
        queue = Queue(model, f"server {number}", SchedStrategy.FCFS)
        queue.set_number_of_servers(servers)
        queue.set_service(job, Exp.fit_mean(service_s))
        routes.set(job, job, fork, queue, 1.0)
        routes.set(job, job, queue, join, 1.0)
    routes.set(job, job, join, think, 1.0)
    model.link(routes)
    table = MVA(model).avg_table()
    per_s = float(table[table.Station == "think"].Tput.values[0])
    return {"throughput_per_s": per_s, "response_s": drawn["clients"] / per_s - drawn["think_s"]}


if __name__ == "__main__":
    main()
