"""Runs of a closed network whose demands are known: the truth that predictions are compared with."""

import dataclasses
import math
from functools import cache

import numpy as np

from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.models import closed_network, solve

LOAD_S, PROXY_S, BACKEND_S, DELAY_S = 8e-6, 20e-6, 30e-6, 120e-6


def settings(clients: int, servers: int, **others: object) -> ModelSettings:
    """A proxy before some servers on a machine with more cores than threads."""
    return dataclasses.replace(
        ModelSettings(
            clients=clients,
            proxies=1,
            servers=servers,
            hosts=(("backends", "machine"), ("load", "machine"), ("proxy", "machine")),
            cores=(("machine", 64.0),),
        ),
        **others,
    )


@cache
def true_rate_per_s(
    clients: int, servers: int, think_s: float = 0.0, proxy_s: float = PROXY_S, unequal: bool = False
) -> float:
    """Exact throughput; the first of `unequal` servers has twice the keys of each other one."""
    parts = [2.0 if unequal and not place else 1.0 for place in range(servers)]
    demands = {"load": LOAD_S, "proxy": proxy_s} | {
        f"server {place}": BACKEND_S * part / sum(parts) for place, part in enumerate(parts)
    }
    return solve(
        closed_network(demands, population=clients, think_s=DELAY_S + think_s)
    ).throughput_total_per_s


def measured(
    one: ModelSettings,
    random: np.random.Generator,
    noise: float,
    role: str = "",
    *,
    block: int = 1,
    slower: float = 0.0,
    slower_proxy: float = 0.0,
    unequal: bool = False,
) -> TrialObservation:
    """A trial with noise, in a block in which everything takes longer by exp(`slower`), and the proxy more."""
    rate = true_rate_per_s(
        one.clients, one.servers, one.think_s * math.exp(-slower), PROXY_S * math.exp(slower_proxy), unequal
    )
    rate *= math.exp(noise * random.standard_normal() - slower)
    response_s = one.clients / rate - one.think_s

    def cpu(value: float) -> float:
        return value * math.exp(noise * random.standard_normal() + slower)

    return TrialObservation(
        run="known",
        trial=f"{one.clients}-{one.servers}-{block}",
        configuration=f"clients={one.clients}, servers={one.servers}",
        block=block,
        role=role,
        settings=one,
        throughput_per_s=rate,
        response_s=response_s,
        responses_s={"all": response_s},
        cpu_s={
            "load": cpu(LOAD_S),
            "proxy": cpu(PROXY_S * math.exp(slower_proxy)),
            "backends": cpu(BACKEND_S),
        },
    )
