"""Waylab's answers for the random models of make_answers.py, in the order of Octave's answers.

Each function takes what Octave was given, and gives a list of arrays; None where there is nothing to compare.
"""

import numpy as np

from waylab.models import JobClass, Network, Route, Station
from waylab.models.elementary.finite import MM1K, MMmK
from waylab.models.elementary.mmm import MMm
from waylab.models.solvers.convolution import solve_convolution
from waylab.models.solvers.mixed import solve_mixed
from waylab.models.solvers.open import solve_open

CLIENT = "client"


def network(service, visits, servers, populations=None, thinks_s=None, arrivals_per_s=None, rates=None):
    """Stations served by processor sharing, so that means may differ by class; `service[class][station]`."""
    classes, count = len(service), len(service[0])
    names = [f"class{index}" for index in range(classes)]
    stations = tuple(
        Station(
            f"station{index}",
            {name: service[number][index] for number, name in enumerate(names)},
            servers=None if servers[index] < 1 else int(servers[index]),
            discipline="ps",
            rates=() if rates is None or rates[index] is None else rates[index],
        )
        for index in range(count)
    )
    kinds = tuple(
        JobClass(
            name,
            int(populations[index]) if populations else 0,
            float(thinks_s[index]) if thinks_s else 0.0,
            float(arrivals_per_s[index]) if arrivals_per_s else 0.0,
        )
        for index, name in enumerate(names)
    )
    counts = {
        name: {f"station{index}": visits[number][index] for index in range(count)}
        for number, name in enumerate(names)
    }
    return Network(kinds, stations, counts)


def numbers(result):
    """Utilisation, response, queue length, throughput by class and station; no utilisation of a delay."""
    busy = np.where([[station.is_delay] for station in result.network.stations], np.nan, result.utilisation)
    found = (busy, result.station_response_s, result.queue_length, result.station_throughput_per_s)
    return [array.T for array in found]


def qsmmm(arrivals, services, servers):
    queue = MMm(arrivals, services, servers)
    result = solve_open(network([[1 / services]], [[1]], [servers], arrivals_per_s=[arrivals]))
    np.testing.assert_allclose(result.response_s[0], queue.response_mean_s, rtol=1e-11)
    return [*_means(queue), queue.probability(0), queue.waits_probability]


def qsmmmk(arrivals, services, servers, room):
    queue = MMmK(arrivals, services, servers, room)
    return [*_means(queue), queue.probability(0), queue.probability(room)]


def qsmm1k(arrivals, services, room):
    queue = MM1K(arrivals, services, room)
    return [*_means(queue), queue.probability(0), queue.probability(room)]


def qsmminf(arrivals, services):
    result = solve_open(network([[1 / services]], [[1]], [0], arrivals_per_s=[arrivals]))
    _, response_s, present, throughput_per_s = (float(array[0, 0]) for array in numbers(result))
    return [None, response_s, present, throughput_per_s, result.present_probability["station0"][0]]


def _means(queue):
    return [queue.utilisation, queue.response_mean_s, queue.in_system_mean, queue.throughput_per_s]


def qnos(arrivals, service, visits, servers):
    return numbers(solve_open(network(service, visits, servers[0], arrivals_per_s=[arrivals])))


def qnom(arrivals, service, visits, servers):
    rates = arrivals[0]
    # There visits are per request of any class.
    own = [
        [sum(rates) / rate * count for count in counts] for rate, counts in zip(rates, visits, strict=True)
    ]
    return numbers(solve_open(network(service, own, servers[0], arrivals_per_s=rates)))


def closed_one(clients, service, visits, servers, think_s=0.0):
    return numbers(solve_convolution(network(service, visits, servers[0], [clients], [think_s])))


def with_rates(clients, service, visits, think_s=0.0):
    first = [row[0] for row in service]
    rates = [tuple(row[0] / time for time in row) for row in service]
    ones = [1] * len(first)
    return numbers(solve_convolution(network([first], visits, ones, [clients], [think_s], rates=rates)))


def qncscmva(clients, service, last, visits, think_s):
    first = [*service[0], last[0][0]]
    rates = [None] * len(service[0]) + [tuple(last[0][0] / time for time in last[0])]
    # There the last station is visited once a cycle.
    own = [[count / visits[0][-1] for count in visits[0]]]
    ones = [1] * len(first)
    found = numbers(solve_convolution(network([first], own, ones, [clients], [think_s], rates=rates)))
    return [None, *found[1:]]


def qncmmva(clients, service, visits, servers=None, thinks_s=None, solver=solve_convolution):
    if servers is None:
        return numbers(solve_convolution(switching(clients[0], service, visits)))
    described = network(service, visits, servers[0], clients[0], thinks_s[0])
    return numbers(solver(described))


def qnmix(arrivals, clients, service, visits):
    ones = [1] * len(service[0])
    return numbers(solve_mixed(network(service, visits, ones, clients[0], arrivals_per_s=arrivals[0])))


def switching(clients, service, routes):
    """Routes from class and station to class and station; a request begins whenever it comes to the first station."""
    places = np.reshape(routes["values"], routes["sizes"], order="F")
    classes, count = places.shape[:2]
    names = [f"class{index}" for index in range(classes)]
    stations = tuple(
        Station(
            f"station{index}",
            {name: service[number][index] for number, name in enumerate(names)},
            discipline="ps",
        )
        for index in range(count)
    )
    ways = [Route(name, CLIENT, "station0") for name in names]
    for before, here, after, there in np.ndindex(places.shape):
        target = CLIENT if there == 0 else f"station{there}"
        chance = float(places[before, here, after, there])
        ways.append(Route(names[before], f"station{here}", target, chance, names[after]))
    kinds = tuple(JobClass(name, size) for name, size in zip(names, clients, strict=True))
    return Network(kinds, stations, routes=tuple(ways))


OURS = {
    "qsmmm": qsmmm,
    "qsmmmk": qsmmmk,
    "qsmm1k": qsmm1k,
    "qsmminf": qsmminf,
    "qnos": qnos,
    "qnom": qnom,
    "qncsmva": closed_one,
    "qncsmvald": with_rates,
    "qncsconv": closed_one,
    "qncsconvld": with_rates,
    "qncscmva": qncscmva,
    "qncmmva": qncmmva,
    "qnmix": qnmix,
}
