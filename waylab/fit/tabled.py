"""The models of tables behind the interface of runs: chain, USL, Gaussian process, nearest, field reports' queues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from waylab.fit.interface import Domain, Estimate, ModelPrediction, RefusedFitError, domain_of_runs
from waylab.fit.layered.demands import legs_of
from waylab.fit.observations import ModelSettings, TrialObservation
from waylab.fit.table.baselines import baselines
from waylab.fit.table.chain import ChainModel
from waylab.fit.table.effects import Effects
from waylab.fit.table.interface import FittedTableModel, TableModel
from waylab.fit.table.observations import CellSettings, Observation, ObservedCell, cells_of

# What a table has columns for.
_KNOWN = {
    "clients",
    "servers",
    "proxies",
    "services",
    "slots",
    "readers",
    "load_threads",
    "writes_share",
    "replicas",
    "keys",
    "value_bytes",
}
CHAIN = "chain"


@dataclass(frozen=True)
class TabledModel:
    """A model of tables; `model` is None for the chain, which needs to know how the trials differ."""

    name: str
    model: TableModel | None = None
    among: tuple[ModelSettings, ...] = field(default=(), repr=False)

    def fit(self, observations: Sequence[TrialObservation]) -> "FittedTabled":
        """Turn trials into rows of a table and fit.

        Raises:
            RefusedFitError: when a factor has no column in a table, the loop is open, or the model refuses.
        """
        domain = domain_of_runs(observations)
        _check(domain, observations)
        cells, _ = cells_of([_row(one, domain) for one in observations])
        model = self.model
        if model is None:
            places = {_deployment(one) for one in (*[cell.settings for cell in cells], *self._among(domain))}
            among = tuple(sorted(_cell(one, domain) for one in self.among)) or tuple(
                one.settings for one in cells
            )
            model = ChainModel(CHAIN, effects=Effects(among if len(places) > 1 else ()))
        return FittedTabled(self.name, model.fit(cells), domain, cells)

    def _among(self, domain: Domain) -> list[CellSettings]:
        return [_cell(one, domain) for one in self.among]


def _deployment(one: CellSettings) -> tuple[object, ...]:
    return (
        one.servers,
        one.middlewares,
        one.client_machines,
        one.writes_share,
        one.multiget_keys,
        one.value_bytes,
    )


@dataclass(frozen=True)
class FittedTabled:
    """A fitted model of a table."""

    name: str
    fitted: FittedTableModel
    domain: Domain
    cells: Sequence[ObservedCell] = field(repr=False)
    log_spreads: Mapping[str, float] = field(default_factory=dict)

    @property
    def parameters(self) -> Mapping[str, float]:
        """Parameters of the model."""
        return self.fitted.parameters

    @property
    def unidentified(self) -> Sequence[str]:
        """What the rows could not identify."""
        return self.fitted.unidentified

    def predict(self, settings: ModelSettings) -> ModelPrediction:
        """Predict one configuration, without an interval.

        Raises:
            RefusedFitError: when a setting has no column in a table, or the model refuses.
        """
        constant = [name for name in self.domain.constant(settings) if name not in _KNOWN]
        if settings.rate_per_s or constant:
            raise RefusedFitError(
                f"a table has no column for {', '.join(constant) or 'the rate of an open loop'}"
            )
        found = self.fitted.predict(_cell(settings, self.domain))
        response_s = settings.in_flight / found.throughput_per_s - settings.think_s
        if not response_s > 0:
            raise RefusedFitError("the model predicts a cycle that is shorter than the think time")
        return ModelPrediction(
            settings,
            self.name,
            Estimate(found.throughput_per_s),
            Estimate(response_s),
            bottleneck=found.bottleneck,
            extrapolates=self.domain.beyond(settings),
        )


def _check(domain: Domain, observations: Sequence[TrialObservation]) -> None:
    varying = [name for name, levels in domain.levels.items() if len(levels) > 1 and name not in _KNOWN]
    if varying:
        raise RefusedFitError(f"a table has no column for {', '.join(varying)}")
    if any(one.settings.rate_per_s for one in observations):
        raise RefusedFitError("models of tables are closed loops, and these trials have a rate")
    if len(domain.others) > 1:
        raise RefusedFitError("the trials are of different systems; fit each apart")


def _cell(one: ModelSettings, domain: Domain) -> CellSettings:
    """The row's settings. Tables know only writes to all servers, so other replicas become a share of such writes."""
    writes = one.writes_share
    if len(domain.levels["replicas"]) > 1 or any(one.replicas != level for level in domain.levels["servers"]):
        writes = (legs_of(one) - 1) / (one.servers - 1) if one.servers > 1 and one.keys == 1 else 0.0
    middlewares = one.proxies or one.services
    return CellSettings(
        experiment="",
        workload="",
        servers=max(one.servers, 1),
        middlewares=middlewares,
        workers=one.pool // middlewares if middlewares else 0,
        client_machines=one.load_threads,
        clients=one.in_flight,
        writes_share=round(writes, 6),
        multiget_keys=one.keys if one.keys > 1 else 0,
        sharded=False,
        value_bytes=one.value_bytes,
    )


def _row(one: TrialObservation, domain: Domain) -> Observation:
    total_s = one.stages_s.get("all", {}).get("total")
    holding_s = sum(one.stages_s.get("all", {}).get(stage, 0.0) for stage in ("send", "backend"))
    return Observation(
        dataset="",
        settings=_cell(one.settings, domain),
        line=0,
        repetition="",
        throughput_clients_per_s=one.throughput_per_s,
        throughput_middleware_per_s=None,
        # Think time and response time together: tables have no column for think time.
        response_clients_s=one.settings.in_flight / one.throughput_per_s,
        response_middleware_s=total_s if one.settings.pool else None,
        response_p95_s=None,
        queue_s=None,
        holding_s=holding_s if one.settings.pool and holding_s else None,
        queue_length=one.queue_length,
        cpu_server=None,
        cpu_middleware=None,
    )


def tabled_models(among: Sequence[ModelSettings] = ()) -> list[TabledModel]:
    """All models of tables; `among` are settings to predict, so that the chain prepares for how they differ."""
    return [TabledModel(CHAIN, among=tuple(among)), *(TabledModel(one.name, one) for one in baselines())]
