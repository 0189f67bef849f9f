"""Networks of configurations for rows of parameters."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from waylab.fit.layered.demands import Parameter, network_of
from waylab.fit.layered.network import CycleNetwork
from waylab.fit.observations import ModelSettings

Array = NDArray[np.float64]

# CPU time that is charged to no program: interrupts, switches, caches.
OVERHEAD = Parameter("overhead", 1.1, 0.25)
# How fast a program's CPU time falls with what waits for it.
BATCHING = Parameter("batching", 0.7, 0.5)


def networks_of(
    parameters: Sequence[Parameter], settings: Sequence[ModelSettings], logs: Array, foreign: Sequence[float]
) -> list[CycleNetwork]:
    """One network for each configuration, with its row of logarithms of the parameters."""
    networks: list[CycleNetwork] = []
    names = [one.name for one in parameters]
    for one, row, share in zip(settings, np.exp(logs), foreign, strict=True):
        values = dict(zip(names, row.tolist(), strict=True))
        overhead, power = values["overhead"], values["batching"]
        net = network_of(one, values, share)
        centres = tuple(
            replace(
                centre, batched_s=overhead * centre.batched_s, alone_s=overhead * centre.alone_s, power=power
            )
            if centre.host
            else centre
            for centre in net.centres
        )
        networks.append(replace(net, centres=centres))
    return networks
