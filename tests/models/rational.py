"""Closed product-form networks in exact rational arithmetic, straight from the definition: slow but exact.

The weight of a state is the product of its stations' weights, and everything is a sum over states. Floats are taken
as the rationals that they are, so there is no rounding anywhere; one chain can be had in decimals of 60 digits, for
populations of hundreds. Shares no code with waylab.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from operator import mul


def closed(populations, delay_s, demands_s, rates):
    """Throughput by chain, queue length by station and chain, and P(n present) by station, all as fractions.

    `demands_s[k][r]` is the work of chain r at station k; `rates[k]` its speeds with 1, 2, ... there, the last holds.
    """
    states = list(product(*(range(size + 1) for size in populations)))
    top = states[-1]
    think = {state: _weight(state, delay_s, range(1, sum(top) + 1)) for state in states}
    weights = [
        {state: _weight(state, demands, speeds) for state in states}
        for demands, speeds in zip(demands_s, rates, strict=True)
    ]
    whole = think
    for station in weights:
        whole = _convolved(whole, station)
    throughput = [whole[_less(top, chain)] / whole[top] for chain in range(len(top))]
    lengths, present = [], []
    for index, station in enumerate(weights):
        others = think
        for other in weights[:index] + weights[index + 1 :]:
            others = _convolved(others, other)
        shares = {state: station[state] * others[_minus(top, state)] / whole[top] for state in states}
        lengths.append(
            [sum(share * state[chain] for state, share in shares.items()) for chain in range(len(top))]
        )
        counts = [Fraction(0)] * (sum(top) + 1)
        for state, share in shares.items():
            counts[sum(state)] += share
        present.append(counts)
    return throughput, lengths, present


def closed_chain(clients, delay_s, demands_s, rates):
    """One chain in decimals of 60 digits, as floats: throughput; by station queue length and P(not empty)."""
    with localcontext() as context:
        context.prec = 60
        think = _series(clients, delay_s, range(1, clients + 1))
        weights = [_series(clients, demand, speeds) for demand, speeds in zip(demands_s, rates, strict=True)]
        others = [_product([think, *weights[:index], *weights[index + 1 :]]) for index in range(len(weights))]
        total = sum(map(mul, weights[0], reversed(others[0])))
        throughput = sum(map(mul, weights[0][:-1], reversed(others[0][:-1]))) / total
        lengths = [
            sum(
                n * weight * other
                for n, (weight, other) in enumerate(zip(station, reversed(rest), strict=True))
            )
            / total
            for station, rest in zip(weights, others, strict=True)
        ]
        busy = [1 - station[0] * rest[-1] / total for station, rest in zip(weights, others, strict=True)]
        return float(throughput), [float(length) for length in lengths], [float(share) for share in busy]


def _series(clients, demand, speeds):
    series = [Decimal(1)]
    for present in range(1, clients + 1):
        series.append(series[-1] * Decimal(demand) / Decimal(speeds[min(present, len(speeds)) - 1]))
    return series


def _product(factors):
    whole = factors[0]
    for factor in factors[1:]:
        backwards = factor[::-1]
        whole = [sum(map(mul, whole[: n + 1], backwards[len(whole) - 1 - n :])) for n in range(len(whole))]
    return whole


def _weight(state, demands, speeds):
    total = sum(state)
    weight = Fraction(math.factorial(total))
    for present in range(1, total + 1):
        weight /= Fraction(speeds[min(present, len(speeds)) - 1])
    for count, demand in zip(state, demands, strict=True):
        weight *= Fraction(demand) ** count / math.factorial(count)
    return weight


def _convolved(first, second):
    return {
        state: sum(
            first[part] * second[_minus(state, part)]
            for part in product(*(range(count + 1) for count in state))
        )
        for state in first
    }


def _less(state, chain):
    return tuple(count - (index == chain) for index, count in enumerate(state))


def _minus(state, other):
    return tuple(one - two for one, two in zip(state, other, strict=True))
