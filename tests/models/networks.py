"""Networks that the tests share: one for each feature, small enough for every solver."""

from waylab.models import Fork, JobClass, Network, Pool, Route, Service, Station, closed_network, open_network

# Lazowska and others, Quantitative System Performance (1984), p. 138: demands at CPU and disk.
LAZOWSKA_OPEN_S = ((1.0, 3.0), (2.0, 4.0))


def repairmen(clients=20, servers=4, service_s=0.2, think_s=1.0):
    return closed_network({"server": service_s}, clients, think_s, {"server": servers})


def three_tiers(clients=12, think_s=0.05):
    demands_s = {"front": 0.01, "store": 0.04, "disk": 0.025}
    return closed_network(demands_s, clients, think_s, {"front": 1, "store": 2, "disk": 1})


def single_servers(clients=3, think_s=15.0):
    return closed_network({"a": 0.605, "b": 2.1, "c": 1.35}, clients, think_s)


def with_delay_station(clients=6):
    return closed_network({"a": 0.5, "b": 0.3, "away": 1.0}, clients, 0.2, {"away": None})


def with_rates(clients=8):
    stations = (
        Station("shared", {"request": 0.1}, rates=(1.0, 1.7, 2.2, 2.5)),
        Station("single", {"request": 0.04}),
    )
    return Network(
        (JobClass("request", clients, Service(0.1)),), stations, {"request": {"shared": 1, "single": 1}}
    )


def two_classes(first=5, second=3):
    stations = (
        Station("cpu", {"batch": 0.3, "query": 0.05}, discipline="ps"),
        Station("disk", {"batch": 0.1, "query": 0.1}),
    )
    visits = {"batch": {"cpu": 1, "disk": 2}, "query": {"cpu": 1, "disk": 0.5}}
    classes = (JobClass("batch", first, Service(0.5)), JobClass("query", second, Service(1.0)))
    return Network(classes, stations, visits)


def switching(clients=12):
    stations = (
        Station("balancer", {"get": 0.002, "set": 0.002}),
        Station("reader", {"get": 0.03}, servers=4),
        Station("writer", {"set": 0.03}),
    )
    ways = [("get", "reader"), ("set", "writer")]
    routes = [Route(name, "client", "balancer") for name, _ in ways]
    routes += [Route(name, "balancer", node) for name, node in ways]
    routes += [Route(name, node, "client") for name, node in ways]
    mix = {"get": 0.9, "set": 0.1}
    classes = (JobClass("get", clients, Service(0.01)), JobClass("set", think=Service(0.01)))
    return Network(classes, stations, routes=routes, switching={"get": mix, "set": mix})


def open_tandem(arrivals_per_s=6.0):
    return open_network(
        {"first": 0.1, "second": 0.25, "away": 0.3}, arrivals_per_s, {"second": 2, "away": None}
    )


def open_two_classes(scale=1.0):
    names = ("a", "b")
    stations = tuple(
        Station(node, dict(zip(names, demands, strict=True)), discipline="ps")
        for node, demands in zip(("cpu", "disk"), zip(*LAZOWSKA_OPEN_S, strict=True), strict=True)
    )
    classes = tuple(
        JobClass(name, arrivals_per_s=scale * rate)
        for name, rate in zip(names, (3 / 19, 2 / 19), strict=True)
    )
    return Network(classes, stations, {name: {"cpu": 1, "disk": 1} for name in names})


def mixed(clients=4, arrivals_per_s=2.0):
    stations = (
        Station("a", {"inside": 0.1, "outside": 0.2}, discipline="ps"),
        Station("b", {"inside": 0.2, "outside": 0.1}, discipline="ps"),
    )
    classes = (JobClass("inside", clients, Service(0.5)), JobClass("outside", arrivals_per_s=arrivals_per_s))
    return Network(classes, stations, {name: {"a": 1, "b": 1} for name in ("inside", "outside")})


def replicated(clients=5, replicas=2, join="all"):
    names = tuple(f"replica{number}" for number in range(replicas))
    stations = tuple(Station(name, {"set": 1.0}) for name in names)
    return Network(
        (JobClass("set", clients, Service(1.0)),),
        stations,
        visits={"set": {"write": 1}},
        forks=(Fork("write", names, join),),
    )


def slots(clients=12, slots=4):
    stations = (
        Station("parse", {"request": 0.005}),
        Station("cpu", {"request": 0.02}, discipline="ps"),
        Station("backend", {"request": 0.03}, servers=2),
    )
    return Network(
        (JobClass("request", clients, Service(0.05)),),
        stations,
        visits={"request": {"parse": 1, "cpu": 1, "backend": 1}},
        pools=(Pool("workers", slots, ("cpu", "backend")),),
    )


def a16(gets=171, sets=9):
    """A16's closed network as its authors built it: two separate populations."""
    readers = tuple(Station(f"reader{number}", {"get": 3.014e-3}, servers=32) for number in range(5))
    writers = tuple(Station(f"writer{number}", {"set": 3.11e-3}) for number in range(5))
    visits = {
        "get": {"balancer": 1.0} | {station.name: 0.2 for station in readers},
        "set": {"balancer": 1.0} | {station.name: 0.2 for station in writers},
    }
    return Network(
        (JobClass("get", gets, Service(5.654e-3)), JobClass("set", sets, Service(5.712e-3))),
        (Station("balancer", {"get": 3.9e-6, "set": 3.9e-6}), *readers, *writers),
        visits,
        name="A16, two populations",
    )


def a16_switching(clients=180, sets=0.05):
    """The same machines with one population whose next operation is random."""
    mix = {"get": 1 - sets, "set": sets}
    base = a16(clients, 1)
    classes = (JobClass("get", clients, Service(5.654e-3)), JobClass("set", think=Service(5.712e-3)))
    return Network(
        classes, base.stations, base.visits, switching={"get": mix, "set": mix}, name="A16, one population"
    )


CLOSED = {
    "repairmen": repairmen,
    "three tiers": three_tiers,
    "single servers": single_servers,
    "delay station": with_delay_station,
    "rates": with_rates,
    "two classes": two_classes,
    "switching": switching,
    "replicated": replicated,
    "slots": slots,
}
OPEN = {"tandem": open_tandem, "two open classes": open_two_classes, "mixed": mixed}
EVERY = CLOSED | OPEN
