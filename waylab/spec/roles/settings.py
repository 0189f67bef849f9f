"""The programs of a system that the specification describes itself: one role for each kind of program.

`docs/any-system.md` explains every key. Knows nothing of processes.
"""

import re
import signal
from dataclasses import dataclass, field

from waylab.spec import checks
from waylab.spec.checks import setting
from waylab.spec.roles.placeholders import words

# Values of placeholders and of `set`.
Plain = bool | int | float | str


def command_line(value: object) -> str:
    """A command line without a shell."""
    words(checks.text(value))
    return str(value).strip()


def command_lines(value: object) -> tuple[str, ...]:
    """A list of command lines, none of them empty."""
    found = checks.texts(value)
    for one in found:
        if not words(one):
            raise ValueError("has an empty command")
    return found


def signal_name(value: object) -> str:
    """The name of a signal, such as TERM."""
    name = checks.text(value).removeprefix("SIG")
    if not hasattr(signal, f"SIG{name}") or name in ("KILL", "STOP"):
        raise ValueError(
            "should be the name of a signal that a program can handle, such as TERM, INT or QUIT"
        )
    return name


def pattern(value: object) -> str:
    """A regular expression, or empty."""
    text = checks.text(value)
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


def web_path(value: object) -> str:
    """The path of a page, or empty."""
    text = checks.text(value)
    if text and not re.fullmatch(r"/[!-~]*", text):
        raise ValueError("should be a path such as /health")
    return text


def addresses(value: object) -> tuple[str, ...]:
    """A list of addresses, each HOST:PORT."""
    found = checks.texts(value)
    for one in found:
        host, _, port = one.rpartition(":")
        if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", host) or not (
            port.isascii() and port.isdecimal() and 0 < int(port) < 65536
        ):
            raise ValueError(f"{one!r} should be HOST:PORT, for example 10.0.0.7:11211")
    return found


def plain(value: object) -> Plain:
    """A number, a word or a truth value."""
    if not isinstance(value, Plain):
        raise ValueError("should be a number, text in quotes, true or false")
    return value


@dataclass(frozen=True)
class ReadySettings:
    """How a program shows that it is ready: it accepts connections on its port, or one of these."""

    line: str = setting(pattern, "")
    http: str = setting(web_path, "")
    status: int = setting(checks.whole(100, 599), 200)
    within_s: float = setting(checks.number(0, 3600, above=True), 15.0)


@dataclass(frozen=True)
class StopSettings:
    """How a program is stopped: the signal, and the seconds after which it is killed."""

    signal: str = setting(signal_name, "TERM")
    within_s: float = setting(checks.number(0, 600, above=True), 10.0)


@dataclass(frozen=True)
class Role:
    """One kind of program of a system, with the number of its instances."""

    program: str = setting(checks.text, "")
    arguments: str = setting(command_line, "")
    # The arguments that make the program print its version; empty: it is not asked.
    version: str = setting(command_line, "")
    count: int = setting(checks.whole(1, 64), 1)
    # 0: the lab chooses a free one.
    port: int = setting(checks.whole(0, 65535), 0)
    user: str = setting(checks.text, "")
    prepare: tuple[str, ...] = setting(command_lines, ())
    fill: tuple[str, ...] = setting(command_lines, ())
    hosts: tuple[str, ...] = setting(checks.texts, ())
    metrics: str = setting(checks.text, "")
    ready: ReadySettings = field(default_factory=ReadySettings)
    stop: StopSettings = field(default_factory=StopSettings)
    environment: dict[str, str] = field(default_factory=dict, metadata={"named": checks.text})
    files: dict[str, str] = field(default_factory=dict, metadata={"named": checks.text})
    # Values of placeholders of the user's own, which factors can vary.
    set: dict[str, Plain] = field(default_factory=dict, metadata={"named": plain})

    def texts(self) -> dict[str, str]:
        """Return every text that may have placeholders, by its key."""
        several = {"prepare": self.prepare, "fill": self.fill}
        return {
            "arguments": self.arguments,
            "metrics": self.metrics,
            **{
                f"{key}[{index}]": text
                for key, list_of in several.items()
                for index, text in enumerate(list_of)
            },
            **{f"environment.{name}": text for name, text in self.environment.items()},
            **{f"files.{name}": text for name, text in self.files.items()},
        }


@dataclass(frozen=True)
class GeneratorSettings:
    """The program that makes the load: `waystage load`, or a command whose output an adapter reads."""

    kind: str = setting(checks.one_of("waystage", "command"), "waystage")
    program: str = setting(checks.text, "")
    arguments: str = setting(command_line, "")
    version: str = setting(command_line, "")
    adapter: str = setting(checks.text, "")
    environment: dict[str, str] = field(default_factory=dict, metadata={"named": checks.text})
    set: dict[str, Plain] = field(default_factory=dict, metadata={"named": plain})

    def texts(self) -> dict[str, str]:
        """Return every text that may have placeholders, by its key."""
        return {
            "arguments": self.arguments,
            **{f"environment.{name}": text for name, text in self.environment.items()},
        }
