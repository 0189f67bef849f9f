"""The data of a trial whose proxy has a fault are stored through one without it. Tests named "real" run programs."""

from itertools import pairwise

import pytest

from waylab.plan import make_plan
from waylab.program import find_waystage
from waylab.spec import Assignment, Backends, Load, Proxy, Spec, System
from waylab.testbed import Programs, Testbed, running_system


def started(directory, generators=2, **proxy):
    """Start the servers of a trial, store its data, stop everything; return the processes by name."""
    spec = Spec(
        name="x",
        system=System(kind="proxy", proxy=Proxy(**proxy), backends=Backends(server="embedded", count=2)),
        load=Load(clients=8, test_time_s=0.2, warm_up_s=0.1),
        assignment=Assignment(load=("a",) * generators),
    )
    trial = make_plan(spec).trials[0]
    with running_system(trial, Programs(find_waystage(), None), directory, Testbed()) as system:
        system.prefill(system.start_servers())
        processes = list(system.processes)
    assert all(process.exit_code == 0 and not process.killed for process in processes)
    return {process.name: process.command for process in processes}


@pytest.mark.parametrize(
    ("dispatch", "fault"),
    [("per-backend", {"fault_write_poll": "20ms"}), ("shared", {"fault_write_hold": "2ms"})],
)
def test_real_data_are_stored_without_the_fault_of_the_proxy(tmp_path, dispatch, fault):
    found = started(tmp_path, dispatch=dispatch, replicas=2, **fault)
    option = f"--{next(iter(fault)).replace('_', '-')}"
    assert option in found["proxy"] and option not in found["fill-proxy"]
    # Every key is on the servers on which the proxy of the trial looks for it.
    same = ("--server", "--replicas")
    of = {name: [pair for pair in pairwise(command) if pair[0] in same] for name, command in found.items()}
    assert of["proxy"] == of["fill-proxy"] and len(of["proxy"]) == 3
    assert found["fill-0"][found["fill-0"].index("--server") + 1] != "127.0.0.1:0"


def test_real_data_are_stored_through_a_proxy_without_faults(tmp_path):
    assert "fill-proxy" not in started(tmp_path, dispatch="per-backend")
