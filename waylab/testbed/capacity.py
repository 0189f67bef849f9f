"""What a plan takes of this machine besides processors: memory and open files. Refused before anything runs."""

import resource

import psutil

from waylab.errors import LabError
from waylab.plan import Trial
from waylab.spec import size_bytes

# Standard streams, listeners, record files and what the runtime opens itself.
_DESCRIPTORS_BESIDE = 64


def check_capacity(trials: tuple[Trial, ...]) -> None:
    """Refuse a plan whose servers want more memory than there is, or whose clients more open files than allowed."""
    memory_bytes = psutil.virtual_memory().total
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for trial in trials:
        backends, load = trial.system.backends, trial.load
        count = trial.system.programs(trial.assignment.generators).get("backends", 0)
        wanted = count * size_bytes(backends.memory)
        if wanted > memory_bytes:
            raise LabError(
                f"system.backends: {count} servers of {backends.memory} may take {wanted >> 20} MiB, "
                f"this machine has {memory_bytes >> 20}; ask for fewer or smaller ones"
            )
        descriptors = load.clients + _DESCRIPTORS_BESIDE
        if allowed not in (resource.RLIM_INFINITY, -1) and descriptors > allowed:
            raise LabError(
                f"load.clients = {load.clients}: needs {descriptors} open files in one program, {allowed} are "
                f"allowed; ask for fewer clients or raise the limit, say ulimit -n {descriptors}"
            )
