"""M/M/m with the proxy's connections to its backends as servers."""

from typing import Any

from waylab.fit.parameters import Fit, NotApplicableError


def fit_slots(configuration: dict[str, Any]) -> Fit:
    """Servers: connections, loops x backends. Services: from dispatched to answered, the stages `send` and `backend`.

    In the discipline `pipelined` a connection is no server in the sense of the model: many requests are in
    flight on it at once, and their times overlap. So the utilisation that follows often is above 1, and the
    model does not apply; that is shown, not hidden.
    """
    if configuration["system"]["kind"] != "proxy":
        raise NotApplicableError("there is no proxy")
    if not configuration["used"]:
        raise NotApplicableError("no trial was used")
    stages = configuration["stages"].get("all", {}).get("stages")
    if not stages:
        raise NotApplicableError("the proxy wrote no stage times")
    holding_ns = stages["send"]["mean_ns"]["mean"] + stages["backend"]["mean_ns"]["mean"]
    outside_ns = stages["total"]["mean_ns"]["mean"] - holding_ns
    return Fit(
        {
            "arrivals_per_s": configuration["throughput_per_s"]["mean"],
            "services_per_s": 1e9 / holding_ns,
            "servers": configuration["system"]["proxy"]["loops"]
            * configuration["system"]["backends"]["count"],
            "outside_ns": outside_ns,
        },
        "servers = loops x backends, service = dispatched to answered; the other stages are added as they are",
    )
