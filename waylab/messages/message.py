"""Messages as clients send and receive them, and the parsing of their headers and documents."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TIMING = re.compile(r"\s*([\w-]+)\s*;\s*dur=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Message:
    """A message from the service.

    Attributes:
        id: increases with time.
        queue: its queue.
        sender: its sender.
        receiver: its receiver; None: anyone.
        sent_unix_us: when it was sent, in microseconds since 1970, by the database's clock.
        body: as it was sent.
        lease_token: of a received message: acknowledges, extends or nacks it.
        attempt: of a received message: how often it was received; the first time is 1.
        dead_letter: of a dead letter: its `queue`, its `attempts` there, the times of its first and last receive,
            and the `reason`.

    """

    id: int
    queue: str
    sender: str
    receiver: str | None
    sent_unix_us: int
    body: bytes = field(repr=False)
    lease_token: str | None = None
    attempt: int | None = None
    dead_letter: Mapping[str, Any] | None = field(default=None, hash=False)

    @property
    def text(self) -> str:
        """The body, decoded as UTF-8."""
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message of a batch: its body, its receiver (None: anyone), its delay and its expiry."""

    body: bytes | str
    receiver: str | None = None
    delay_s: float | None = None
    expiry_s: float | None = None

    def document(self) -> dict[str, str]:
        """Return it as in the JSON document of a batch."""
        body = self.body.encode() if isinstance(self.body, str) else self.body
        document = {
            "body_base64": base64.b64encode(body).decode(),
            "to": self.receiver,
            "delay": duration(self.delay_s),
            "expiry": duration(self.expiry_s),
        }
        return {name: value for name, value in document.items() if value is not None}


def of_headers(headers: Mapping[str, str], body: bytes) -> Message:
    """Read a message from its headers and body."""
    return Message(
        id=int(headers["waystage-message"]),
        queue=headers["waystage-queue"],
        sender=headers["waystage-sender"],
        receiver=headers.get("waystage-receiver"),
        sent_unix_us=int(headers["waystage-sent-unix-us"]),
        body=body,
        lease_token=headers.get("waystage-lease-token"),
        attempt=int(headers["waystage-attempt"]) if "waystage-attempt" in headers else None,
        dead_letter=json.loads(headers["waystage-dead-letter"])
        if "waystage-dead-letter" in headers
        else None,
    )


def of_document(document: Mapping[str, Any]) -> Message:
    """Read a message of a JSON document."""
    return Message(
        id=document["id"],
        queue=document["queue"],
        sender=document["sender"],
        receiver=document["receiver"],
        sent_unix_us=document["sent_unix_us"],
        body=base64.b64decode(document["body_base64"]),
        lease_token=document.get("lease_token"),
        attempt=document.get("attempt"),
        dead_letter=document.get("dead_letter"),
    )


def duration(time_s: float | None) -> str | None:
    """Return a duration as the service parses it, in whole milliseconds."""
    return None if time_s is None else f"{round(time_s * 1000)}ms"


def stage_times_s(header: str) -> dict[str, float]:
    """Read `Server-Timing`: the time of each stage, and `total`, in seconds."""
    return {name: float(time_ms) / 1000 for name, time_ms in _TIMING.findall(header)}
