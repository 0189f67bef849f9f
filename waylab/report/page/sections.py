"""The words of the page: set-up, answer, threats, environment, how to repeat it. All facts are from the JSON."""

import shlex
from collections.abc import Callable
from html import escape

from msgspec import to_builtins

from waylab.report.page import hosts, imported
from waylab.report.page.content import Content
from waylab.report.page.numbers import shown
from waylab.report.tables.table import definitions, table
from waylab.runfolder.run import DesignSettings, lookup
from waylab.runfolder.trial import TrialOutcome

# Writes the setting with a dotted key: its value, `varied`, or None if the system does not have it.
Said = Callable[[str], str | None]


def setup(content: Content) -> str:
    """What was measured, under which load, and in which order."""
    spec = content.spec
    design = spec.design
    several = [factor for factor in spec.factors if len(factor.levels) > 1]
    varied = {key for factor in several for level in factor.levels for key in level.settings}
    # The only level of a factor is a setting like any other.
    fixed = {
        key: value
        for factor in spec.factors
        if len(factor.levels) == 1
        for key, value in factor.levels[0].settings.items()
    }
    settings = to_builtins(spec)

    def said(key: str) -> str | None:
        value = fixed.get(key, lookup(settings, key))
        if key in varied:
            return "<i>varied</i>"
        return None if value in (None, "", []) else shown(value)

    factors = [
        [escape(factor.name), ", ".join(escape(level.label) for level in factor.levels)] for factor in several
    ]
    pairs = [
        *(_of_messages(said, content) if content.of_messages else _of_keys(said, content)),
        ("load", _load(said, content)),
        (
            "trial",
            f"{said('load.warm_up_s')} s of warm-up, {said('load.test_time_s')} s measured; "
            "every process started afresh",
        ),
        (
            "design",
            f"{shown(design.blocks)} blocks, order within a block {escape(design.order)}, "
            f"seed {shown(design.seed)}, {shown(content.analysis.trials_total)} trials",
        ),
    ]
    stopping = content.analysis.stopping
    if stopping:
        words = f"after {shown(stopping.block)} blocks: {escape(stopping.reason)}"
        pairs.append(("stopping rule", words))
    varied_table = (
        table(["factor", "levels"], factors, f"What is varied; {_combined(design)}.") if factors else ""
    )
    if content.spec.gates.imported:
        return definitions(imported.set_up(content)) + varied_table
    return definitions(pairs) + hosts.hosts_table(content) + varied_table


def _load(said: Said, content: Content) -> str:
    """Describe the load: a closed loop by its clients and think time, an open one by its rate and arrivals."""
    names = "clients threads ratio pipeline protocol sample"
    names = names.replace("ratio ", "") if content.of_messages else names
    if content.open_loop:
        return f"open loop: {_listed(said, 'load', f'rate arrivals {names}')}"
    think = said("load.think_time")
    thinks = "no think time" if think == shown("none") else f"think time {think}"
    return f"closed loop: {_listed(said, 'load', names)}, {thinks}"


def _of_keys(said: Said, content: Content) -> list[tuple[str, str]]:
    """Describe the key-value system: proxies, if there are any, and backends."""
    programs = {role for trial in content.run.plan for role in trial.description.programs}
    embedded = "embedded" in content.servers
    each = "memory threads" if any(server != "embedded" for server in content.servers) else ""
    each += " service_time workers" if embedded else ""
    dispatches = {str(lookup(to_builtins(trial), "system.proxy.dispatch")) for trial in content.run.plan}
    slots = {"per-backend": "readers writers", "shared": "workers multi_get"}
    pairs = [
        ("system", f"{said('system.kind')}"),
        (
            "backends",
            f"{said('system.backends.count')}, {escape(' and '.join(content.servers) or 'none ran')}",
        ),
        ("each backend", _listed(said, "system.backends", each)),
    ]
    if "proxy" in programs:
        names = "count dispatch replicas loops stamps sample backend_timeout"
        pairs.append(("proxy", _listed(said, "system.proxy", names)))
        used = " ".join(names for dispatch, names in slots.items() if dispatch in dispatches)
        pairs += [("slots", _listed(said, "system.proxy", used))] if used else []
    keys = "data_size key_size key_pattern key_minimum key_maximum multi_key_get"
    return [*pairs, ("keys and values", _listed(said, "load", keys))]


def _of_messages(said: Said, content: Content) -> list[tuple[str, str]]:
    """Describe the message system: services, if there are any, and their database."""
    dispatches = {str(lookup(to_builtins(trial), "system.messages.dispatch")) for trial in content.run.plan}
    names = "services dispatch" + " lanes" * ("fused" in dispatches) + " connections" * ("pool" in dispatches)
    programs = {role for trial in content.run.plan for role in trial.description.programs}
    services = [("services", _listed(said, "system.messages", names))] if "messages" in programs else []
    return [
        ("system", f"{said('system.kind')}"),
        *services,
        ("database", _listed(said, "system.database", "further_index settings")),
        ("requests", _listed(said, "load", "operations data_size prefill")),
    ]


def _combined(design: DesignSettings) -> str:
    """Name the combinations of the levels that are run."""
    if design.kind == "2k-p":
        return f"a fraction of all combinations, by {', '.join(design.generators)}"
    if design.kind == "listed":
        return "of the combinations those that the experiment lists"
    return "all levels are crossed" + (", but for what the specification excludes" if design.exclude else "")


def _listed(said: Said, prefix: str, names: str) -> str:
    """List settings with their values; one that is empty or switched off is left out."""
    values = {name: said(f"{prefix}.{name}") for name in names.split()}
    return ", ".join(
        f"{name.replace('_', ' ')} {value}"
        for name, value in values.items()
        if value not in (None, shown(""))
    )


def threats(content: Content) -> str:
    """What may make the numbers wrong, or true only here."""
    spec = content.spec
    gates = spec.gates
    blocks = {trial.block for trial in content.analysis.trials if trial.used}
    known = [
        *hosts.threats(content),
        *_loop_threats(content),
        f"The interval of a mean rests on {shown(len(blocks))} blocks; "
        "requests within a trial are correlated and are not counted as evidence.",
        escape(content.analysis.steady_state.text),
    ]
    if any(c.stages for c in content.configurations):
        known.append(
            "Stage times come from a sample of the requests. The time before the "
            f"{escape(content.middle)}'s read returns belongs to no stage, and appears only in the difference of both "
            "views."
        )
    if gates.loosened:
        limits = escape("; ".join(gates.loosened_limits))
        known.append(f"Gates looser than the default: {limits}. Reason given: {escape(gates.reason)}")
    if not content.analysis.complete:
        known.append("The run is not finished: some trials of the plan have not been run.")
    if content.environment.virtual_machine:
        known.append("The machine is virtual: other virtual machines on the host show only as steal time.")
    known += [escape(threat) for threat in spec.report.threats]
    return "<ul>" + "".join(f"<li>{text}</li>" for text in known) + "</ul>"


def _loop_threats(content: Content) -> list[str]:
    """What the kind of load means for the response times, and what is not counted."""
    if content.spec.gates.imported:
        return [escape(text) for text in content.analysis.headline.warnings[1:]]
    return [
        "The load is an open loop: requests are due even if earlier replies are late, and a response time starts "
        "when the request is due."
        if content.open_loop
        else "The load is a closed loop: when the system is slow, it receives fewer requests. "
        "Response times are those of this population, not of independent arrivals.",
        "The kernel's interrupts, most of them for the loopback network, are counted for the whole machine and not as "
        "CPU time of a program.",
    ]


def environment(content: Content) -> str:
    """Machine and programs."""
    e = content.environment
    pairs = [
        (
            "CPU",
            f"{escape(e.processor)}, {shown(e.cores)} cores, {shown(e.cores_usable)} usable",
        ),
        ("memory", shown(e.memory_bytes, lambda size: f"{size / 2**30:.1f} GiB")),
        ("system", escape(f"{e.system}, kernel {e.kernel}")),
        ("governor, clock", escape(f"{e.governor or 'unknown'}, {e.clock_source or 'unknown'}")),
        (
            "load average before",
            ", ".join(shown(value, lambda number: f"{number:.2f}") for value in e.load_average),
        ),
    ]
    for name, program in e.programs.items():
        if program:
            pairs.append(
                (name, f"{escape(str(program.version))}, SHA-256 <code>{escape(program.sha256)}</code>")
            )
    if e.source:
        changed = ", with changes that are not committed" if e.source.changed else ""
        pairs.append(("commit", f"<code>{escape(e.source.commit)}</code>{changed}"))
    packages = ", ".join(f"{name} {version}" for name, version in e.packages.items())
    pairs.append(("lab", escape(f"waylab {e.waylab}, Python {e.python}; {packages}")))
    pairs.append(
        (
            "run",
            f"{escape(content.run.name)}, begun {escape(content.run.created_utc)} UTC",
        )
    )
    return definitions(pairs)


def reproduce(content: Content) -> str:
    """The commands, from the whole run down to the processes of one trial."""
    lines = "\n".join(content.run.reproduce)
    where = (
        "The imported files are in <code>sources</code> of the run folder."
        if content.spec.gates.imported
        else "The specification as it was run is in <code>spec.toml</code> of the run folder, "
        "seeds are in <code>run.json</code>."
    )
    text = f"<p>{where}</p><pre>{escape(lines)}</pre>"
    for trial in content.analysis.trials:
        outcome = content.trial_outcome(trial.id)
        if outcome:
            summary = f"<summary>The processes of one trial, {escape(trial.id)}</summary>"
            text += f"<details open>{summary}<pre>{escape(_commands(outcome))}</pre></details>"
            break
    return text


def _commands(outcome: TrialOutcome) -> str:
    return "\n\n".join(f"# {process.name}\n{shlex.join(process.command)}" for process in outcome.processes)
