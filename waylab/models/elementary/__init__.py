"""Single queues: means, deviations and quantiles from closed formulas and small chains. Each states its assumptions."""

from waylab.models.elementary.birth_death import BirthDeath
from waylab.models.elementary.bulk import BulkService
from waylab.models.elementary.closed import ClosedBirthDeath, ClosedMMc, closed_probabilities
from waylab.models.elementary.erlang import erlang_b, erlang_c, servers_needed
from waylab.models.elementary.finite import MM1K, MMmK
from waylab.models.elementary.general import GG1, GGm
from waylab.models.elementary.mg1 import MG1
from waylab.models.elementary.mm1 import MM1
from waylab.models.elementary.mmm import MMm
from waylab.models.elementary.processor_sharing import ProcessorSharing
from waylab.models.elementary.queue import Queue
from waylab.models.elementary.table import as_table

__all__ = [
    "GG1",
    "MG1",
    "MM1",
    "MM1K",
    "BirthDeath",
    "BulkService",
    "ClosedBirthDeath",
    "ClosedMMc",
    "GGm",
    "MMm",
    "MMmK",
    "ProcessorSharing",
    "Queue",
    "as_table",
    "closed_probabilities",
    "erlang_b",
    "erlang_c",
    "servers_needed",
]
