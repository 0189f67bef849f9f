"""Traffic of the links: counted by the shaper, or by the bridge's end of the pair for a direction without a shaper.

A shaper counts every frame with its header. An interface counts segments of up to 64 KiB with a single header each,
so its bytes are slightly too few.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_TC_H_ROOT = 0xFFFFFFFF


@dataclass
class LinkCounters:
    """Traffic of one host since its link was created."""

    sent_bytes: int = 0
    sent_packets: int = 0
    sent_dropped: int = 0
    received_bytes: int = 0
    received_packets: int = 0
    received_dropped: int = 0
    late_packets: int = 0

    def add_process(self, up: dict[str, int], down: dict[str, int]) -> None:
        """Add what the program of a link has counted: frames that did not fit, were lost on purpose, or were late."""
        self.sent_dropped += up["dropped"] + up["lost"]
        self.received_dropped += down["dropped"] + down["lost"]
        self.late_packets += up["late_frames"] + down["late_frames"]

    def set(self, direction: str, bytes_and_packets: tuple[int, int, int]) -> None:
        """Set the three counters of a direction, `sent` or `received`."""
        for name, value in zip(("bytes", "packets", "dropped"), bytes_and_packets, strict=True):
            setattr(self, f"{direction}_{name}", value)

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return asdict(self)


def interface_counters() -> dict[str, LinkCounters]:
    """Read the interfaces of the current namespace; `sent` is the traffic received from the other end of the pair."""
    found = {}
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    for line in lines:
        name, _, numbers = line.partition(":")
        values = [int(number) for number in numbers.split()]
        counters = LinkCounters()
        counters.set("sent", (values[0], values[1], values[3]))
        counters.set("received", (values[8], values[9], values[11]))
        found[name.strip()] = counters
    return found


def shaper_counters(route: Any) -> dict[int, tuple[int, int, int]]:
    """Return bytes, packets and drops of the shapers of a namespace, by the number of their interface."""
    found = {}
    for shaper in route.get_qdiscs():
        statistics = shaper.get_attr("TCA_STATS")
        if shaper["parent"] == _TC_H_ROOT and shaper.get_attr("TCA_KIND") in ("tbf", "netem") and statistics:
            found[int(shaper["index"])] = (statistics["bytes"], statistics["packets"], statistics["drop"])
    return found
