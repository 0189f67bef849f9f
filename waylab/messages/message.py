"""What messages look like, on the way in and on the way out, and how their headers and documents are read."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TIMING = re.compile(r"\s*([\w-]+)\s*;\s*dur=([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was handed out.

    Attributes:
        id: grows with time.
        queue: its queue.
        sender: who sent it.
        receiver: for whom it is; None: for anyone.
        sent_unix_us: when it was sent, in microseconds since 1970, by the clock of the database.
        body: as it was sent.
        lease: of a message that was received: the word with which it is acknowledged.
        attempt: of a message that was received: how often it was; the first is 1.

    """

    id: int
    queue: str
    sender: str
    receiver: str | None
    sent_unix_us: int
    body: bytes = field(repr=False)
    lease: str | None = None
    attempt: int | None = None

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message of a batch: its body; for whom it is (None: for anyone); when, and for how long it may be had."""

    body: bytes | str
    receiver: str | None = None
    delay_s: float | None = None
    expiry_s: float | None = None

    def document(self) -> dict[str, str]:
        """As JSON has it."""
        body = self.body.encode() if isinstance(self.body, str) else self.body
        document = {
            "body_base64": base64.b64encode(body).decode(),
            "to": self.receiver,
            "delay": duration(self.delay_s),
            "expiry": duration(self.expiry_s),
        }
        return {name: value for name, value in document.items() if value is not None}


def of_headers(headers: Mapping[str, str], body: bytes) -> Message:
    """Read a message that came as its bytes."""
    return Message(
        id=int(headers["waystage-message"]),
        queue=headers["waystage-queue"],
        sender=headers["waystage-sender"],
        receiver=headers.get("waystage-receiver"),
        sent_unix_us=int(headers["waystage-sent-unix-us"]),
        body=body,
        lease=headers.get("waystage-lease"),
        attempt=int(headers["waystage-attempt"]) if "waystage-attempt" in headers else None,
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
        lease=document.get("lease"),
        attempt=document.get("attempt"),
    )


def duration(time_s: float | None) -> str | None:
    """A time as the service reads it, in whole milliseconds."""
    return None if time_s is None else f"{round(time_s * 1000)}ms"


def stage_times_s(header: str) -> dict[str, float]:
    """Read `Server-Timing`: the time of each stage, and `total`, in seconds."""
    return {name: float(time_ms) / 1000 for name, time_ms in _TIMING.findall(header)}
