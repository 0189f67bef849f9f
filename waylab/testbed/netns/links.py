"""Measures links before the first trial and compares them with their settings.

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

# For each direction at the first attempt; each further attempt lasts twice as long.
SECONDS = 0.5
ATTEMPTS = 3
# So many frames resolve a rate to 0.3 %, after the first fifth of the time.
_FRAMES = 400
# The first fifth of the time includes the slow start of TCP.
_ROUND_TRIPS = 40
_ENDS_WITHIN_S = 4 * meter.TIMEOUT_S
# Round trip of an emulated link without delay, on a machine with other load.
_ROUND_TRIP_SLACK_MS = 0.5


@dataclass(frozen=True)
class Measurement:
    """The measurement of one link: payload in each direction, round trips, and the payload of a full segment."""

    up_payload_mbit: float
    down_payload_mbit: float
    round_trip_min_ms: float
    round_trip_median_ms: float
    segment_bytes: int


@dataclass(frozen=True)
class LinkMeasurement:
    """One number of a link: its setting, the payload or time that TCP should show, and the measured value."""

    name: str
    asked: float
    expected: float
    measured: float
    slack: float = 0.0

    @property
    def error(self) -> float:
        """The relative deviation from the expected value, after a small tolerance for delays."""
        beyond = max(0.0, abs(self.measured - self.expected) - self.slack)
        return beyond / self.expected * (1 if self.measured > self.expected else -1)

    def as_link_check(self) -> LinkCheck:
        """Return the check for `trial.json`."""
        return LinkCheck(
            name=self.name,
            asked=self.asked,
            expected=self.expected,
            measured=self.measured,
            error=self.error,
        )

    def text(self, limit: float) -> str:
        """Return the check in one line."""
        unit = "ms" if self.name.endswith("_ms") else "Mbit/s of payload"
        return (
            f"{self.name} = {self.asked:g}: measured {self.measured:.4g} {unit}, expected {self.expected:.4g} "
            f"({100 * self.error:+.1f} %, limit {100 * limit:g} %)"
        )


def measuring_s(settings: HostSettings, times: float = 1.0) -> tuple[float, float]:
    """Return how long each direction is measured: longer for slow links and long delays.

    An unlimited direction is measured, too: it shows the maximum of the machine.
    """
    delay_s = (settings.delay_ms or 0.0) * 1e-3
    up_s, down_s = (
        max(SECONDS, _FRAMES * FRAME_BYTES * 8e-6 / rate_mbit, _ROUND_TRIPS * 2 * delay_s)
        if rate_mbit
        else SECONDS
        for rate_mbit in (settings.up_mbit, settings.down_mbit)
    )
    return times * up_s, times * down_s


def measure_links(
    hosts: dict[str, Host], far: Host, logs: Path, seconds: dict[str, tuple[float, float]]
) -> dict[str, Measurement]:
    """Measure the link of every host against a host with an unlimited link."""
    logs.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-I", meter.__file__]
    server = far.start("meter", [*program, "serve", far.address], logs)
    try:
        address = server.wait_until_ready()
        found = {}
        for name, host in hosts.items():
            up_s, down_s = seconds[name]
            command = [*program, "measure", address, str(up_s), str(down_s)]
            client = host.start(f"meter-{name}", command, logs)
            try:
                if not client.wait(_ENDS_WITHIN_S + 2 * (up_s + down_s)) or client.exit_code != 0:
                    raise TestbedError(f"link of {name}: cannot be measured{client.last_error_line()}")
                found[name] = Measurement(**json.loads(client.stdout.read_text(encoding="utf-8")))
            finally:
                client.stop()
        return found
    finally:
        server.stop()


def checks(settings: HostSettings, measured: Measurement) -> list[LinkMeasurement]:
    """Compare the measurement of a link with its settings; only limits are checked."""
    share = measured.segment_bytes / FRAME_BYTES
    found = []
    for name, asked, got in (
        ("up_mbit", settings.up_mbit, measured.up_payload_mbit),
        ("down_mbit", settings.down_mbit, measured.down_payload_mbit),
    ):
        if asked:
            found.append(LinkMeasurement(name, asked, asked * share, got))
    if settings.delay_ms:
        # The delay applies to both directions.
        there_and_back = 2 * settings.delay_ms
        # Other programs delay most round trips on a busy machine. Late frames of a link have a gate of their own.
        got = measured.round_trip_min_ms
        found.append(
            LinkMeasurement("delay_ms", settings.delay_ms, there_and_back, got, _ROUND_TRIP_SLACK_MS)
        )
    return found
