"""Histograms of the load generator: decoded, merged over trials, never averaged."""

from typing import Any

import numpy as np
from hdrh.histogram import HdrHistogram

from waylab.errors import LabError

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
RARE_PERCENTILE = 99.9
# A percentile with fewer values above it says more about luck than about the system.
ABOVE_MIN = 10
_HIGHEST_NS = 3_600_000_000_000
_CURVE_SHARES = sorted(
    {round(float(share), 6) for share in np.linspace(0.01, 0.99, 50)} | {0.001, 0.005, 0.995, 0.999, 0.9999}
)


def decode(text: str, where: str) -> HdrHistogram:
    """Decode one histogram (V2, deflated, base64); an operation that never happened has an empty one."""
    if not text:
        return HdrHistogram(1, _HIGHEST_NS, 3)
    try:
        histogram = HdrHistogram.decode(text)
    except Exception as error:  # the library raises whatever zlib, ctypes or base64 raise
        raise LabError(f"{where}: the histogram cannot be decoded: {error}") from None
    if histogram is None:
        raise LabError(f"{where}: the histogram cannot be decoded")
    return histogram


def merge(histograms: list[HdrHistogram]) -> HdrHistogram:
    """Add histograms up; exact, since all have the same buckets."""
    merged = HdrHistogram(1, _HIGHEST_NS, 3)
    for histogram in histograms:
        if histogram.get_total_count():
            merged.add(histogram)
    return merged


def percentiles(histogram: HdrHistogram) -> dict[str, int]:
    """Percentiles in nanoseconds; each needs ten values above it."""
    count = histogram.get_total_count()
    shown = [percent for percent in PERCENTILES if count]
    shown += [RARE_PERCENTILE] if count * (100 - RARE_PERCENTILE) / 100 >= ABOVE_MIN else []
    return {f"{percent:g}": int(histogram.get_value_at_percentile(percent)) for percent in shown}


def curve(histogram: HdrHistogram) -> list[dict[str, Any]]:
    """Return the cumulative distribution at some sixty shares, as far as ten values lie above."""
    count = histogram.get_total_count()
    return [
        {"share": share, "response_ns": int(histogram.get_value_at_percentile(100 * share))}
        for share in _CURVE_SHARES
        if count * (1 - share) >= ABOVE_MIN
    ]
