"""Function 9 of docs/life-of-an-experiment.md: the numbers and gates of one trial."""

from dataclasses import dataclass, field

from hdrh.histogram import HdrHistogram
from msgspec.structs import replace

from waylab.analysis.statistics.laws import LawCheck
from waylab.analysis.trial import histograms, stages, views
from waylab.analysis.trial.agreement import changed_files, disagreements, imported_disagreements
from waylab.analysis.trial.artifacts import Artifacts
from waylab.analysis.trial.cpu import cpu_use
from waylab.analysis.trial.database import database_use
from waylab.analysis.trial.gates import Consistency, failed_reasons, judge
from waylab.analysis.trial.imported import imported_gates, imported_percentiles, where_from
from waylab.analysis.trial.law_checks import interactive_law, record_laws
from waylab.analysis.trial.links import link_use
from waylab.analysis.trial.stages import Samples
from waylab.analysis.trial.traces import trace
from waylab.analysis.trial.within import effective_counts, within_trial
from waylab.errors import LabError
from waylab.runfolder import paths
from waylab.runfolder.load import LoadSecond, LoadSummary
from waylab.runfolder.numbers import Law
from waylab.runfolder.run import GateLimits, PlannedTrial
from waylab.runfolder.trial import TrialOutcome
from waylab.runfolder.trial_numbers import (
    AnalysedTrial,
    CpuUse,
    Gate,
    LinkUse,
    TrialNumbers,
    TrialOperation,
)

# A load has at most this factor and this many seconds more than planned. A file with more is from another load, and its
# histograms would take too much memory.
_SECONDS_FACTOR, _SECONDS_SPARE = 2, 120
# Exceptions that a damaged or forged telemetry file can cause.
_DAMAGED = (LabError, KeyError, ValueError, TypeError, ArithmeticError)


@dataclass
class TrialResult:
    """A trial of `analysis.json`, and beside it the samples that only merging over trials needs."""

    content: AnalysedTrial
    histograms: dict[str, HdrHistogram] = field(default_factory=dict)
    stages: Samples = field(default_factory=dict)

    @property
    def used(self) -> bool:
        """Whether the trial passed every gate."""
        return self.content.used

    @property
    def numbers(self) -> TrialNumbers:
        """The numbers of a trial that was measured."""
        return self.content.measured()


def trial_result(artifacts: Artifacts, limits: GateLimits) -> TrialResult:
    """Compute everything about one trial; a trial without a readable summary has only its reasons."""
    if artifacts.load is not None and artifacts.outcome is not None:
        try:
            return _measured(artifacts, artifacts.outcome, artifacts.load, limits)
        except LabError as error:
            artifacts.problems.append(str(error))
        except ArithmeticError as error:
            artifacts.problems.append(f"{artifacts.directory}: its numbers cannot be computed: {error}")
    text = "; ".join(artifacts.problems)
    gate = Gate(name="complete", passed=False, value=None, limit=None, text=text)
    return TrialResult(_analysed(artifacts, [gate], None))


def _analysed(artifacts: Artifacts, gates: list[Gate], numbers: TrialNumbers | None) -> AnalysedTrial:
    plan, reasons = artifacts.plan, failed_reasons(gates)
    return AnalysedTrial(
        id=plan.id,
        order=plan.order,
        block=plan.block,
        configuration=plan.configuration,
        levels=plan.levels,
        seed=plan.seed,
        run=artifacts.outcome is not None,
        used=not reasons,
        reasons=reasons,
        gates=gates,
        refused=artifacts.outcome.refused if artifacts.outcome else [],
        numbers=numbers,
    )


def _measured(
    artifacts: Artifacts, outcome: TrialOutcome, load: LoadSummary, limits: GateLimits
) -> TrialResult:
    if (load.source is not None) != limits.imported:
        raise LabError(
            f"{artifacts.directory / paths.LOAD}: {where_from(load)}, and {paths.RUN} says otherwise"
        )
    planned_s = artifacts.plan.load.warm_up_s + artifacts.plan.load.test_time_s
    if len(load.seconds) > _SECONDS_SPARE + _SECONDS_FACTOR * planned_s:
        raise LabError(
            f"{artifacts.directory}: the load file has {len(load.seconds)} seconds, but {planned_s:g} s were planned"
        )
    operations = load.operations.by_name()
    decoded = {
        name: histograms.decode(operation.response.histogram, f"{artifacts.directory}, {name}")
        for name, operation in operations.items()
        if operation.count and (operation.response.histogram or load.source is None)
    }
    numbers = _numbers(artifacts, outcome, load, decoded, limits)
    numbers, samples = _with_records(artifacts, load, numbers)
    consistency = Consistency(
        changed_files(artifacts),
        disagreements(artifacts, outcome, load, decoded, numbers.laws)
        if load.source is None
        else imported_disagreements(load, decoded),
    )
    gates = judge(artifacts, outcome, load, numbers, limits, consistency)
    if load.source is not None:
        gates = imported_gates(gates, load.source)
    return TrialResult(_analysed(artifacts, gates, numbers), decoded, samples)


def _numbers(
    artifacts: Artifacts,
    outcome: TrialOutcome,
    load: LoadSummary,
    decoded: dict[str, HdrHistogram],
    limits: GateLimits,
) -> TrialNumbers:
    """Return the numbers that need no records."""
    plan, operations = artifacts.plan, load.operations.by_name()
    read = load.totals.hits + load.totals.misses
    law = _interactive_law(plan, load, limits)
    within = within_trial(load.seconds, str(artifacts.directory))
    effective = {"all": effective_counts(within)}
    return TrialNumbers(
        server=outcome.server,
        took_s=outcome.took_s,
        measured_s=load.measured_s,
        requests=load.totals.requests,
        throughput_per_s=load.throughput_per_s,
        largest_second_per_s=_largest_second(load.seconds),
        think_mean_s=plan.load.think_mean_s,
        interactive_law_error=law.residual if law else None,
        laws=[_as_law(law)] if law else [],
        within=within,
        trace=trace(load.seconds, within),
        hit_ratio=load.totals.hits / read if read else None,
        generator_cpu_share=load.cpu.share if load.cpu else None,
        operations={
            name: TrialOperation(
                count=one.count,
                response_mean_ns=one.response.mean_ns or 0.0,
                response_std_ns=one.response.std_ns or 0.0,
                percentiles_ns=histograms.percentiles(
                    decoded[name], effective.get(name), one.response.unanswered
                )
                if name in decoded
                else imported_percentiles(one),
                unanswered=one.response.unanswered,
            )
            for name, one in operations.items()
            if name in decoded or (load.source is not None and one.response.mean_ns)
        },
        cpu=_cpu(artifacts, load),
        links=_links(artifacts, load),
        database=database_use(outcome, load),
        time_scale=plan.time_scale,
        source=load.source,
    )


def _with_records(
    artifacts: Artifacts, load: LoadSummary, numbers: TrialNumbers
) -> tuple[TrialNumbers, Samples]:
    """Add the numbers that come from records: stages, views from both ends, and further laws."""
    recorded, window_ns, described = artifacts.records, load.window_ns, artifacts.plan.description
    samples: Samples = {}
    middle = recorded.get(described.stage_program or "")
    if middle is not None:
        samples = stages.stage_samples(middle, window_ns)
        numbers = replace(
            numbers,
            outcomes=stages.outcomes(middle, window_ns),
            stages=stages.stage_summary(samples),
            queue_length=stages.queue_summary(middle, window_ns),
            proxy_view=views.proxy_view(recorded["load"], middle, window_ns) if "load" in recorded else None,
        )
    if "cache" in recorded and "load" in recorded and "cache" in described.record_files:
        server = views.server_view(recorded["load"], recorded["cache"], window_ns)
        numbers = replace(numbers, server_view=server)
    laws = record_laws(load, recorded, window_ns, numbers.throughput_per_s)
    return replace(numbers, laws=[*numbers.laws, *map(_as_law, laws)]), samples


def _interactive_law(plan: PlannedTrial, load: LoadSummary, limits: GateLimits) -> LawCheck | None:
    """Check the interactive law of a closed loop; None for an open one, and where imported results lack a part."""
    if plan.load.rate or (load.source is not None and "interactive_law" in load.source.unknown):
        return None
    # A table may have means without a number of requests.
    is_answered = load.totals.requests or load.source is not None
    response_ns = load.operations.all.response.mean_ns if is_answered else None
    in_flight = plan.load.clients * plan.load.pipeline
    return interactive_law(
        in_flight, load.throughput_per_s, response_ns, plan.load.think_mean_s, limits.interactive_law_max
    )


def _as_law(law: LawCheck) -> Law:
    return Law(**vars(law))


def _cpu(artifacts: Artifacts, load: LoadSummary) -> CpuUse:
    if load.cpu is None:
        return CpuUse()
    try:
        accounting = artifacts.outcome.accounting if artifacts.outcome else None
        requests, plan = load.totals.requests, artifacts.plan
        roles = plan.description.programs
        return cpu_use(
            artifacts.directory, load.cpu, load.window_ns, requests, roles, accounting, plan.covariate
        )
    except _DAMAGED as error:
        artifacts.problems.append(f"telemetry: {error}")
        return CpuUse()


def _links(artifacts: Artifacts, load: LoadSummary) -> LinkUse:
    try:
        return link_use(artifacts.directory, artifacts.testbed, artifacts.plan, load.window_ns)
    except _DAMAGED as error:
        artifacts.problems.append(f"{paths.HOSTS}: {error}")
        return LinkUse()


def _largest_second(seconds: list[LoadSecond]) -> float | None:
    """Return the most requests in one whole second of the window; the last one may be cut short."""
    return max((float(second.requests) for second in seconds if second.measured), default=None)
