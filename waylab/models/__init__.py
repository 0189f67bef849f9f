"""Mathematics about queues. numpy and scipy only; imports nothing else of the lab.

Any unit of time may be used, the same for all arguments; the names say seconds.
"""

from waylab.models.closed import ClosedMMc
from waylab.models.mm1 import MM1, UnstableError
from waylab.models.mmm import MMm, erlang_b, erlang_c

__all__ = ["MM1", "ClosedMMc", "MMm", "UnstableError", "erlang_b", "erlang_c"]
