"""Models of a message service, fitted to numbers from known parameters: the fit recovers them."""

import pytest
from made import interval, made_configuration, made_system

from waylab.fit import NotApplicableError, fit_holding, fit_message_stations, fit_slots
from waylab.fit.message_stations import fit_servers, part_times
from waylab.models import ClosedBirthDeath, JobClass, MMm, Network, Station, solve
from waylab.predict.messages import capped_chain, closed_stations, open_stations
from waylab.runfolder.run import LoadSettings
from waylab.spec import Messages, System

SERVICE_S, DATABASE_S, DELAY_S = 0.2e-3, 2e-3, 0.5e-3


def configuration(clients, rate_per_s, times_s, dispatch="pool", connections=16, services=1, kind="messages"):
    """A configuration as the analysis returns it: mean times of service, queue, database and the rest outside."""
    service_s, queue_s, database_s, outside_s = times_s
    parts = {"parse": 0.5 * service_s, "route": 0.0, "admit": 0.25 * service_s, "queue": queue_s}
    parts |= {"send": 0.0, "backend": database_s, "reply": 0.25 * service_s}
    parts["total"] = sum(parts.values())
    response_s = parts["total"] + outside_s
    messages = {"dispatch": dispatch, "connections": connections, "services": services, "lanes": 2}
    system = System(kind=kind, messages=Messages(**messages))
    percentiles = dict.fromkeys(("p5_ns", "p25_ns", "p50_ns", "p75_ns", "p95_ns", "p99_ns"), 0.0)
    times = {name: {"mean_ns": interval(1e9 * t), **percentiles} for name, t in parts.items()}
    response = {"count": 1, "response_mean_ns": interval(1e9 * response_s)}
    return made_configuration(
        system=made_system(system),
        load=LoadSettings(clients=clients),
        throughput_per_s=interval(rate_per_s),
        operations={"all": response | {"percentiles_ns": {}, "percentile_intervals_ns": {}}},
        stages={"all": {"count": 1, "stages": times}},
    )


def network(clients, servers):
    stations = (
        Station("delay", {"request": DELAY_S}, None),
        Station("service", {"request": SERVICE_S}, 64),
        Station("database", {"request": DATABASE_S}, servers),
    )
    visits = {"request": dict.fromkeys(("delay", "service", "database"), 1.0)}
    return solve(Network((JobClass("request", clients, 0.0),), stations, visits=visits))


def of_network(clients, servers):
    """A configuration whose numbers come from exactly this network."""
    result = network(clients, servers)
    delay_s, service_s, database_s = (float(time_s) for time_s in result.station_response_s[:, 0])
    times_s = (service_s, database_s - DATABASE_S, DATABASE_S, delay_s)
    return configuration(clients, result.throughput_total_per_s, times_s, connections=servers)


@pytest.mark.parametrize("servers", [1, 7, 40])
def test_the_fit_recovers_the_number_of_servers(servers):
    shares = (0.3, 0.7, 0.9, 0.97)
    points = [
        (rho * servers * 100.0, MMm(rho * servers * 100.0, 100.0, servers).response_mean_s) for rho in shares
    ]
    assert fit_servers(points, 0.01) == servers


def test_a_throughput_above_every_number_of_servers_is_an_error():
    with pytest.raises(NotApplicableError, match="more requests arrive than 256 servers"):
        fit_servers([(1e6, 0.01)], 0.01)


def test_a_fitted_network_predicts_loads_far_from_saturation():
    taught = [of_network(clients, 64) for clients in (4, 16)]
    for clients in (8, 12):
        truth, measured = network(clients, 64), of_network(clients, 64)
        predicted = closed_stations(fit_message_stations(taught, measured).parameters)
        assert predicted.throughput_per_s == pytest.approx(truth.throughput_total_per_s, rel=0.03)
        response_ns = open_stations(fit_message_stations(taught, measured).parameters).response_mean_ns
        assert response_ns == pytest.approx(1e9 * truth.response_mean_s, rel=0.05)


def test_the_chain_predicts_a_full_pool_and_stations_do_not():
    """Fitted to loads that at most fill the pool, the chain is right where clients wait for connections."""
    taught = [of_network(clients, 16) for clients in (4, 12, 24)]
    for clients in (32, 64, 120):
        truth, measured = network(clients, 16), of_network(clients, 16)
        predicted = capped_chain(fit_holding(taught, measured).parameters)
        assert predicted.throughput_per_s == pytest.approx(truth.throughput_total_per_s, rel=0.02)
        assert predicted.response_mean_ns == pytest.approx(1e9 * truth.response_mean_s, rel=0.05)


def test_holding_times_are_constant_beyond_the_measured_range():
    """With more connections in use than measured, the holding time is the longest measured one."""
    taught = [
        configuration(2, 1000.0, (0.0, 0.0, 1e-3, 1e-3)),
        configuration(8, 2000.0, (0.0, 0.0, 3e-3, 1e-3)),
    ]
    fit = fit_holding(taught, configuration(40, 1.0, (0.0, 0.0, 1.0, 1e-3)))
    holding_s = fit.parameters.holding_s
    assert (
        len(holding_s) == 16 and holding_s[0] == pytest.approx(1e-3) and holding_s[-1] == pytest.approx(3e-3)
    )
    assert holding_s[2] == pytest.approx(1e-3 + 2e-3 * 2 / 5)
    chain = ClosedBirthDeath(40, 1e-3, [n / t for n, t in enumerate(holding_s, start=1)])
    assert capped_chain(fit.parameters).throughput_per_s == pytest.approx(chain.throughput_per_s)


def test_the_queue_of_lanes_belongs_to_the_holding_time():
    taught = [
        configuration(clients, 1000.0 * clients, (0.0, 1e-3, 1e-3, 0.0), dispatch="fused")
        for clients in (4, 8)
    ]
    assert fit_holding(taught, taught[0]).parameters.holding_s == pytest.approx([2e-3] * 4)
    with pytest.raises(NotApplicableError, match="a lane fuses the waiting requests"):
        fit_slots(taught[0])
    pooled = configuration(4, 1000.0, (1e-4, 0.0, 1e-3, 0.0), connections=40, services=3)
    assert fit_slots(pooled).parameters.servers == 42, "rounded up for each service"


def test_models_learn_only_from_configurations_of_the_same_system():
    other = configuration(8, 1000.0, (1e-4, 0.0, 1e-3, 0.0), services=2)
    mine = configuration(8, 1000.0, (1e-4, 0.0, 1e-3, 0.0))
    with pytest.raises(NotApplicableError, match="no trial of this system can be used"):
        fit_message_stations([other], mine)
    with pytest.raises(NotApplicableError, match="two different loads"):
        fit_holding([mine], mine)
    with pytest.raises(NotApplicableError, match="there is no message service"):
        part_times(configuration(8, 1.0, (0.0, 0.0, 0.0, 0.0), kind="proxy"))


def test_a_service_without_a_database_has_one_station():
    alone = configuration(8, 1000.0, (1e-4, 0.0, 0.0, 1e-4), dispatch="none")
    parameters = fit_message_stations([alone], alone).parameters
    assert list(parameters.stations) == ["service"]
    assert parameters.stations["service"].service_s == pytest.approx(1e-4)
    assert closed_stations(parameters).throughput_per_s > 0
