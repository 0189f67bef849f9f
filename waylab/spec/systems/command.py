"""The system `command`: programs that the specification describes itself, each kind of them a role."""

import dataclasses
import re
from collections.abc import Iterable, Mapping

from msgspec import structs

from waylab.runfolder.run import SystemDescription
from waylab.spec.roles.placeholders import placeholders
from waylab.spec.roles.settings import GeneratorSettings, Role
from waylab.spec.settings import Load
from waylab.spec.systems.key_value import KeyValueSystem
from waylab.spec.systems.under_test import Shown, System

# Placeholders that every instance of a role has; `port.NAME` is another free port.
OF_INSTANCE = ("address", "port", "directory", "index", "seed", "clients")
# What other roles and the generator may read of a role that is already running.
OF_OTHERS = ("address", "port", "endpoint", "endpoints", "each", "directory")
# Placeholders of the generator beside the settings of the load.
OF_GENERATOR = ("address", "port", "endpoint", "endpoints", "output", "seed", "total_s")
# The keys whose texts are no commands.
_NO_COMMAND = re.compile(r"\.(?:environment\..+|files\..+|metrics)$")
# Settings of the load that always have a meaning, because the lab or the analysis uses them.
_ALWAYS = ("clients", "threads", "test_time_s", "warm_up_s", "think_time", "sample")


class OwnSystem(KeyValueSystem):
    """The common part of systems that the project does not know: `waystage load` or another generator loads them."""

    def load_reaches(self, system: System) -> str:
        """Every client reaches all instances of the target."""
        return "all"

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse settings of the project's own systems, and a generator that cannot make the load."""
        if system.program:
            raise ValueError(
                f"system.program: is a waystage that runs parts of a system; system.kind = {self.name!r} has none"
            )
        _check_generator(system, load, generators)
        if system.generator.kind == "waystage":
            super().check(system, load, generators)

    def record_files(self, system: System, generators: int) -> dict[str, int]:
        """`waystage load` leaves records, other generators none."""
        return {"load": generators} if system.generator.kind == "waystage" else {}

    def describe(self, system: System, generators: int) -> SystemDescription:
        """Return the description; another generator speaks a protocol that the lab does not know."""
        described = super().describe(system, generators)
        if system.generator.kind == "waystage":
            return described
        return structs.replace(described, protocol=system.generator.adapter, operations=[], hit_ratio=False)


class CommandSystem(OwnSystem):
    """Programs that the lab starts and stops as the specification says."""

    name = "command"

    def programs(self, system: System, generators: int) -> dict[str, int]:
        """The roles in the order in which a request passes them, which is the reverse of the order of their start."""
        return {name: role.count for name, role in reversed(system.roles.items())}

    def check(self, system: System, load: Load, generators: int) -> None:
        """Refuse roles that cannot be started, and texts with unknown placeholders."""
        if not system.roles:
            raise ValueError(
                'system.roles: is missing; system.kind = "command" has a table [system.roles.NAME] for each program'
            )
        if system.addresses:
            raise ValueError('system.addresses: needs system.kind = "external"; a role has address and port')
        if system.target and system.target not in system.roles:
            raise ValueError(
                f"system.target = {system.target!r}: is no role; known: {', '.join(system.roles)}"
            )
        above: list[str] = []
        for name, role in system.roles.items():
            _check_role(name, role, above)
            above.append(name)
        _check_ports(system.roles)
        super().check(system, load, generators)

    def titles(self) -> dict[str, str]:
        """The roles have the names of the specification."""
        return {}

    def shown(self, system: System) -> Shown:
        """The values that the user named."""
        return {
            name: [[key, f"system.roles.{name}.set.{key}"] for key in role.set]
            for name, role in system.roles.items()
        }


def target_of(system: System) -> str:
    """Return the role that the load reaches."""
    return system.target or list(system.roles)[-1]


def load_settings(load: Load) -> dict[str, object]:
    """Return the settings of a load as placeholders."""
    return {part.name: getattr(load, part.name) for part in dataclasses.fields(load)}


def _check_role(name: str, role: Role, above: list[str]) -> None:
    where = f"system.roles.{name}"
    if not role.program:
        raise ValueError(f"{where}.program: is missing; it is the path of a program, or its name on PATH")
    _check_set(role.set, OF_INSTANCE, where)
    for key, text in role.texts().items():
        _check_placeholders(text, {*OF_INSTANCE, *role.set}, above, f"{where}.{key}")
    if role.ready.line and role.ready.http:
        raise ValueError(f"{where}.ready: has both line and http; a program is ready in one way")
    if role.metrics and not role.metrics.startswith("http://"):
        raise ValueError(f"{where}.metrics = {role.metrics!r}: should begin with http://")


def _check_set(values: Mapping[str, object], taken: Iterable[str], where: str) -> None:
    for key in values:
        if key in taken:
            raise ValueError(f"{where}.set.{key}: the lab itself sets {{{key}}}; choose another name")


def _check_placeholders(text: str, known: set[str], roles: list[str], where: str) -> None:
    for name in placeholders(text):
        head, _, rest = name.partition(".")
        if name in known or (head == "port" and "index" in known and rest.isidentifier()):
            continue
        if head in roles and rest == "each" and _NO_COMMAND.search(where):
            raise ValueError(
                f"{where}: {{{name}}} repeats a word of a command; here write {{{head}.endpoints}}"
            )
        if head in roles and rest in OF_OTHERS:
            continue
        here = ", ".join([*sorted(known), *(f"{role}.endpoint" for role in roles)])
        raise ValueError(
            f"{where}: {{{name}}} is no placeholder; known here: {here}; write {{{{{name}}}}} for the text"
        )


def _check_ports(roles: Mapping[str, Role]) -> None:
    """Refuse two programs with the same port on the same host."""
    used: dict[tuple[str, int], str] = {}
    for name, role in roles.items():
        for index in range(role.count if role.port else 0):
            host = role.hosts[index % len(role.hosts)] if role.hosts else ""
            other = used.setdefault((host, role.port), f"{name} {index}")
            if other != f"{name} {index}":
                of = (
                    "another instance" if other.startswith(f"{name} ") else f"system.roles.{other.split()[0]}"
                )
                raise ValueError(
                    f"system.roles.{name}.port = {role.port}: {of} has the same port on the same host; "
                    "leave port out, and the lab chooses a free one for each"
                )


def _check_generator(system: System, load: Load, generators: int) -> None:
    generator = system.generator
    if generator.kind == "waystage":
        given = [key for key in ("program", "arguments", "adapter", "version") if getattr(generator, key)]
        if given:
            raise ValueError(f'system.generator.{given[0]}: needs system.generator.kind = "command"')
        return
    for key in ("program", "adapter"):
        if not getattr(generator, key):
            raise ValueError(
                f'system.generator.{key}: is missing; system.generator.kind = "command" needs it'
            )
    if generators > 1:
        raise ValueError('assignment.load: system.generator.kind = "command" is one load generator')
    settings = load_settings(load)
    _check_set(generator.set, {*OF_GENERATOR, *settings}, "system.generator")
    known = {*OF_GENERATOR, *settings, *generator.set}
    for key, text in generator.texts().items():
        _check_placeholders(text, known, list(system.roles), f"system.generator.{key}")
    _check_used(generator, load)


def _check_used(generator: GeneratorSettings, load: Load) -> None:
    """Refuse a setting of the load that would have no effect."""
    used = {name for text in generator.texts().values() for name in placeholders(text)}
    if "clients" not in used:
        raise ValueError(
            "system.generator.arguments: has no {clients}, so the generator could have another number of clients "
            "than load.clients"
        )
    if not {"total_s", "test_time_s"} & used:
        raise ValueError(
            "system.generator.arguments: has no {total_s}, the seconds of warm-up and test time, rounded up; "
            "without it the generator could end too early"
        )
    default = load_settings(Load())
    for name, value in load_settings(load).items():
        if value != default[name] and name not in {*used, *_ALWAYS}:
            raise ValueError(
                f"load.{name} = {value!r}: has no effect, because system.generator has no {{{name}}}"
            )
