"""The words of the page: set-up, answer, threats, environment, how to repeat it. All facts are from the JSON."""

import shlex
from collections.abc import Callable
from html import escape

from msgspec import to_builtins

from waylab.report.page import hosts
from waylab.report.page.content import Content
from waylab.report.page.numbers import shown
from waylab.report.tables.table import definitions, table
from waylab.runfolder.run import DesignSettings, lookup
from waylab.runfolder.trial import TrialOutcome

_VERDICTS = {
    "equivalent": "The same within the margin",
    "better": "A difference, the candidate is better",
    "worse": "A difference, the candidate is worse",
    "undecided": "Undecided",
}


def setup(content: Content) -> str:
    """What was measured, under which load, and in which order."""
    spec = content.spec
    design = spec.design
    varied = {key for factor in spec.factors for level in factor.levels for key in level.settings}

    settings = to_builtins(spec)

    def said(key: str) -> str | None:
        value = lookup(settings, key)
        if key in varied:
            return "<i>varied</i>"
        return None if value is None else shown(value)

    factors = [
        [escape(factor.name), ", ".join(escape(level.label) for level in factor.levels)]
        for factor in spec.factors
    ]
    dispatch = "system.proxy.dispatch"
    has_slots = dispatch in varied or said(dispatch) not in (None, shown("pipelined"))
    pairs = [
        *(_of_messages(said) if content.of_messages else _of_keys(said, content.servers, has_slots)),
        (
            "load; closed loop, unless it has a rate",
            _listed(said, "load", "clients threads ratio think_time rate arrivals pipeline protocol sample"),
        ),
        ("trial", _listed(said, "load", "warm_up_s test_time_s") + "; every process started afresh"),
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
    note = "This is a run at quick scale: fewer blocks, shorter trials or fewer levels than the specification has."
    quick = f'<p class="note">{note}</p>' if content.run.quick else ""
    return (
        quick
        + definitions(pairs)
        + hosts.hosts_table(content)
        + table(["factor", "levels"], factors, f"What is varied; {_combined(design)}.")
    )


def _of_keys(said: Callable[[str], str | None], servers: list[str], has_slots: bool) -> list[tuple[str, str]]:
    """What is measured when keys and values are: proxies and backends."""
    pairs = [
        ("system", f"{said('system.kind')}: load, then proxies and backends; or, if direct, backends alone"),
        ("backends", f"{said('system.backends.count')}, {escape(' and '.join(servers) or 'none ran')}"),
        ("each backend", _listed(said, "system.backends", "memory threads service_time workers")),
        (
            "proxy",
            _listed(said, "system.proxy", "count dispatch replicas loops stamps sample backend_timeout"),
        ),
    ]
    if has_slots:
        pairs.append(("slots", _listed(said, "system.proxy", "readers writers workers multi_get")))
    keys = "data_size key_size key_pattern key_minimum key_maximum multi_key_get"
    return [*pairs, ("keys and values", _listed(said, "load", keys))]


def _of_messages(said: Callable[[str], str | None]) -> list[tuple[str, str]]:
    """What is measured when messages are: services and their database."""
    return [
        ("system", f"{said('system.kind')}: load, then message services and their database, or it alone"),
        ("services", _listed(said, "system.messages", "services dispatch lanes connections")),
        ("database", _listed(said, "system.database", "further_index settings")),
        ("requests", _listed(said, "load", "operations data_size prefill")),
    ]


def _combined(design: DesignSettings) -> str:
    """Name the combinations of the levels that are run."""
    if design.kind == "2k-p":
        return f"a fraction of all combinations, by {', '.join(design.generators)}"
    if design.kind == "listed":
        return "of the combinations those that the specification lists"
    return "all levels are crossed" + (", but for what the specification excludes" if design.exclude else "")


def _listed(said: Callable[[str], str | None], prefix: str, names: str) -> str:
    values = {name: said(f"{prefix}.{name}") for name in names.split()}
    return ", ".join(
        f"{name.replace('_', ' ')} {value}" for name, value in values.items() if value is not None
    )


def answer(content: Content) -> str:
    """The hypothesis beside the facts."""
    spec = content.spec
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in content.facts)
    return (
        definitions(
            [("hypothesis", escape(spec.hypothesis)), ("would be refuted by", escape(spec.refuted_by))]
        )
        + decided(content)
        + f"<p>What was measured:</p><ul>{items}</ul>"
        + '<p class="soft">These are facts. Where the comparisons decide nothing, '
        "the sentence above says what would refute the hypothesis.</p>"
    )


def decided(content: Content) -> str:
    """What the comparisons that the specification announced decide, each with its evidence."""
    everything = content.analysis.comparisons
    comparisons = [c for c in everything if c.role == "effect"]
    checks = [arm.text for c in everything for arm in (c.null, c.control) if arm is not None]
    words = "".join(f"<p>The instrument: {escape(text)}.</p>" for text in checks)
    if not comparisons:
        none = "The specification announced no comparison, so that no test decides the hypothesis."
        return f'<div class="verdict"><p>{none}</p>{words}</div>'
    items = "".join(
        f"<li><b>{escape(_VERDICTS[c.verdict])}.</b> {escape(c.verdict_text)}</li>" for c in comparisons
    )
    head = "The comparisons that the specification announced:"
    return f'<div class="verdict"><p>{head}</p><ul>{items}</ul>{words}</div>'


def threats(content: Content) -> str:
    """What may make the numbers wrong, or true only here."""
    spec = content.spec
    gates = spec.gates
    known = [
        *hosts.threats(content),
        "The load is a closed loop: when the system is slow, less is asked of it. "
        "Response times are those of this population, not of independent arrivals.",
        f"The interval of a mean rests on {shown(spec.design.blocks)} blocks; "
        "requests within a trial are correlated and are not counted as evidence.",
        "The kernel's interrupts, most of them for the loopback network, are counted for the whole machine and not as "
        "CPU time of a program.",
        escape(content.analysis.steady_state.text),
        "Stage times come from a sample of the requests; what happens before the proxy's read returns belongs to no "
        "stage and shows only in the difference of both views.",
    ]
    if gates.loosened:
        limits = ", ".join(f"{escape(name)} = {shown(getattr(gates, name))}" for name in gates.loosened)
        known.append(f"Gates looser than the default: {limits}. Reason given: {escape(gates.reason)}")
    if not content.analysis.complete:
        known.append("The run is not finished: some trials of the plan have not been run.")
    if content.environment.virtual_machine:
        known.append("The machine is virtual: other virtual machines on the host show only as steal time.")
    known += [escape(threat) for threat in spec.report.threats]
    return "<ul>" + "".join(f"<li>{text}</li>" for text in known) + "</ul>"


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
    text = (
        "<p>The specification as it was run is in <code>spec.toml</code> of the run folder, "
        f"seeds are in <code>run.json</code>.</p><pre>{escape(lines)}</pre>"
    )
    for trial in content.analysis.trials:
        outcome = content.trial_outcome(trial.id)
        if outcome:
            summary = f"<summary>The processes of one trial, {escape(trial.id)}</summary>"
            text += f"<details open>{summary}<pre>{escape(_commands(outcome))}</pre></details>"
            break
    return text


def _commands(outcome: TrialOutcome) -> str:
    return "\n\n".join(f"# {process.name}\n{shlex.join(process.command)}" for process in outcome.processes)
