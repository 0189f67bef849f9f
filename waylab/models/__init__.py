"""Mathematics about queues. numpy and scipy only; imports nothing else of the lab.

Any unit of time may be used, the same for all arguments; the names say seconds.
"""

from waylab.models.bounds import (
    Bounds,
    asymptotic_bounds,
    balanced_job_bounds,
    bottlenecks,
    geometric_bounds,
    saturation_factor,
)
from waylab.models.description import Fork, JobClass, Pool, Route, Station
from waylab.models.elementary import (
    GG1,
    MG1,
    MM1,
    MM1K,
    BirthDeath,
    BulkService,
    ClosedBirthDeath,
    ClosedMMc,
    GGm,
    MMm,
    MMmK,
    ProcessorSharing,
    Queue,
    as_table,
    erlang_b,
    erlang_c,
    servers_needed,
)
from waylab.models.errors import AssumptionError, ModelError, UnstableError
from waylab.models.network import Network, closed_network, open_network
from waylab.models.network_file import network_as_dict, network_from_dict, read_network, write_network
from waylab.models.phase_type import PhaseType
from waylab.models.result import Result
from waylab.models.service import Service
from waylab.models.simulate import simulate
from waylab.models.solve import solve
from waylab.models.summary import explain
from waylab.models.sweep import sweep
from waylab.models.usl import Usl, UslFit, fit_usl

__all__ = [
    "GG1",
    "MG1",
    "MM1",
    "MM1K",
    "AssumptionError",
    "BirthDeath",
    "Bounds",
    "BulkService",
    "ClosedBirthDeath",
    "ClosedMMc",
    "Fork",
    "GGm",
    "JobClass",
    "MMm",
    "MMmK",
    "ModelError",
    "Network",
    "PhaseType",
    "Pool",
    "ProcessorSharing",
    "Queue",
    "Result",
    "Route",
    "Service",
    "Station",
    "UnstableError",
    "Usl",
    "UslFit",
    "as_table",
    "asymptotic_bounds",
    "balanced_job_bounds",
    "bottlenecks",
    "closed_network",
    "erlang_b",
    "erlang_c",
    "explain",
    "fit_usl",
    "geometric_bounds",
    "network_as_dict",
    "network_from_dict",
    "open_network",
    "read_network",
    "saturation_factor",
    "servers_needed",
    "simulate",
    "solve",
    "sweep",
    "write_network",
]
