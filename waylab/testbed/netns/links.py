"""Links are measured before they are believed: what was asked, what TCP should carry of it, and what it carried.

With an MTU of 1500 bytes and TCP's time stamps a full Ethernet frame of 1514 bytes carries 1448 bytes of payload
(20 of IP and 32 of TCP come off the 1500). So of 100 Mbit/s of frames a connection carries 95.64 Mbit/s.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from waylab.runfolder.trial import LinkCheck
from waylab.spec import HostSettings
from waylab.testbed.hosts import Host
from waylab.testbed.netns import meter
from waylab.testbed.netns.network import FRAME_BYTES
from waylab.testbed.processes import TestbedError

# Each way, at the first attempt; every further one takes twice as long.
SECONDS = 0.5
ATTEMPTS = 3
# An unlimited direction is measured, too: it shows what the machine could carry at most.
_ENDS_WITHIN_S = 4 * meter.TIMEOUT_S
# What an emulated wire itself takes there and back, on a machine that does other things as well.
_ROUND_TRIP_SLACK_MS = 0.5


@dataclass(frozen=True)
class Measurement:
    """What the meter measured of one link: payload each way, round trips, and the payload of a full segment."""

    up_payload_mbit: float
    down_payload_mbit: float
    round_trip_min_ms: float
    round_trip_median_ms: float
    segment_bytes: int


@dataclass(frozen=True)
class Check:
    """One number of a link: what was asked for, what follows from it, what was measured. Rates are of payload."""

    name: str
    asked: float
    expected: float
    measured: float
    slack: float = 0.0

    @property
    def error(self) -> float:
        """How far off it is, as a share of what was expected; a little slack for delays."""
        beyond = max(0.0, abs(self.measured - self.expected) - self.slack)
        return beyond / self.expected * (1 if self.measured > self.expected else -1)

    def as_link_check(self) -> LinkCheck:
        """Return what the run folder keeps."""
        return LinkCheck(
            name=self.name,
            asked=self.asked,
            expected=self.expected,
            measured=self.measured,
            error=self.error,
        )

    def text(self, limit: float) -> str:
        """Say it in one line."""
        unit = "ms" if self.name.endswith("_ms") else "Mbit/s of payload"
        return (
            f"{self.name} = {self.asked:g}: measured {self.measured:.4g} {unit}, expected {self.expected:.4g} "
            f"({100 * self.error:+.1f} %, limit {100 * limit:g} %)"
        )


def measure_links(hosts: dict[str, Host], far: Host, logs: Path, seconds: float) -> dict[str, Measurement]:
    """Measure the link of every host against a host whose own link has no limits."""
    logs.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-I", meter.__file__]
    server = far.start("meter", [*program, "serve", far.address], logs)
    try:
        address = server.wait_until_ready()
        found = {}
        for name, host in hosts.items():
            client = host.start(f"meter-{name}", [*program, "measure", address, str(seconds)], logs)
            try:
                if not client.wait(_ENDS_WITHIN_S) or client.exit_code != 0:
                    raise TestbedError(f"link of {name}: cannot be measured{client.last_words()}")
                found[name] = Measurement(**json.loads(client.stdout.read_text(encoding="utf-8")))
            finally:
                client.stop()
        return found
    finally:
        server.stop()


def checks(settings: HostSettings, measured: Measurement) -> list[Check]:
    """Set what was measured of one link beside what was asked for; what has no limit is not checked."""
    share = measured.segment_bytes / FRAME_BYTES
    found = []
    for name, asked, got in (
        ("up_mbit", settings.up_mbit, measured.up_payload_mbit),
        ("down_mbit", settings.down_mbit, measured.down_payload_mbit),
    ):
        if asked:
            found.append(Check(name, asked, asked * share, got))
    if settings.delay_ms:
        # Of what the host sends, and of what it receives.
        there_and_back = 2 * settings.delay_ms
        got = measured.round_trip_median_ms
        found.append(Check("delay_ms", settings.delay_ms, there_and_back, got, _ROUND_TRIP_SLACK_MS))
    return found
