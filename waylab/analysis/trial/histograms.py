"""Histograms of the load generator: decoded, merged over trials, never averaged."""

import base64
import struct
import zlib

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from waylab.analysis.statistics.percentiles import rank
from waylab.errors import LabError
from waylab.runfolder.analysis import DistributionPoint
from waylab.runfolder.numbers import Percentiles

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
RARE_PERCENTILE = 99.9
# For bands of quartiles and of nearly everything; they need as many values below as the others above.
LOW_PERCENTILES = (1.0, 5.0, 25.0, 75.0)
# A percentile with fewer values above it says more about luck than about the system.
ABOVE_MIN = 10
_HIGHEST_NS = 3_600_000_000_000
# Histograms of the load generator have three digits. A header with more digits would allocate more memory.
_DIGITS_MAX, _HIGHEST_MAX_NS = 3, 1 << 62
_OUTER, _INNER = struct.Struct(">II"), struct.Struct(">IIIIQQd")
# Ten bytes hold any count, and 1024 counts belong to each power of two.
_INFLATED_MAX = _INNER.size + 10 * 1024 * 64
_CURVE_SHARES = sorted(
    {round(float(share), 6) for share in np.linspace(0.01, 0.99, 50)} | {0.001, 0.005, 0.995, 0.999, 0.9999}
)


def decode(text: str, where: str) -> HdrHistogram:
    """Decode one histogram (V2, deflated, base64); an operation that never happened has an empty one."""
    if not text:
        return HdrHistogram(1, _HIGHEST_NS, 3)
    try:
        _check_size(text)
        histogram = HdrHistogram.decode(text)
    except Exception as error:  # the library raises whatever zlib, ctypes or base64 raise
        raise LabError(f"{where}: the histogram cannot be decoded: {error}") from None
    if histogram is None:
        raise LabError(f"{where}: the histogram cannot be decoded")
    return histogram


def _check_size(text: str) -> None:
    """Raise ValueError for a histogram that would take more memory than one of the load generator.

    A few bytes can demand gigabytes: by the digits and the largest value in the header, or as deflated zeros.
    """
    content = base64.b64decode(text, validate=True)
    inflated = zlib.decompressobj().decompress(content[_OUTER.size :], _INFLATED_MAX + 1)
    if len(inflated) > _INFLATED_MAX:
        raise ValueError(f"it is longer than {_INFLATED_MAX} bytes")
    _, _, _, digits, lowest, highest, _ = _INNER.unpack_from(inflated)
    if not 1 <= digits <= _DIGITS_MAX or not 1 <= lowest < highest <= _HIGHEST_MAX_NS:
        raise ValueError(f"its header declares {digits} digits from {lowest} to {highest}")


def merge(histograms: list[HdrHistogram]) -> HdrHistogram:
    """Add histograms up; exact, since all have the same buckets."""
    merged = HdrHistogram(1, _HIGHEST_NS, 3)
    for histogram in histograms:
        if histogram.get_total_count():
            merged.add(histogram)
    return merged


def percentiles(
    histogram: HdrHistogram, effective: dict[str, float] | None = None, unanswered: int = 0
) -> Percentiles:
    """Percentiles in nanoseconds; each needs ten values above it, or ten effective ones if `effective` is given.

    Requests without a reply count as slower than any value. If the request at the rank has none, there is no value.
    """
    answered = histogram.get_total_count()
    count = answered + unanswered
    known = effective or {}
    shown = [
        percent
        for percent in sorted((*LOW_PERCENTILES, *PERCENTILES, RARE_PERCENTILE))
        if known.get(f"{percent:g}", count) * min(percent, 100 - percent) / 100 >= ABOVE_MIN * (1 - 1e-9)
        and rank(percent, count) <= answered
    ]
    values_ns = values_at(histogram, shown, unanswered)
    return {f"{percent:g}": value_ns for percent, value_ns in zip(shown, values_ns, strict=True)}


def values_at(histogram: HdrHistogram, percents: list[float], unanswered: int = 0) -> list[int]:
    """Values at percentiles, by the load generator's rule; the largest value if one is among the unanswered."""
    answered = histogram.get_total_count()
    if not answered or not percents:
        return [0] * len(percents)
    counts, values_ns = matrix([[histogram]], "a histogram")
    wanted = [min(answered, rank(percent, answered + unanswered)) for percent in percents]
    places = np.searchsorted(np.cumsum(counts[0]), wanted)
    return [int(value) for value in values_ns[places]]


def mean(histogram: HdrHistogram) -> float:
    """Return the mean in nanoseconds, each value taken as the middle of its bucket."""
    return moments(histogram)[0]


def moments(histogram: HdrHistogram) -> tuple[float, float]:
    """Return the mean and the standard deviation in nanoseconds, divided by n; 0 and 0 without a value.

    The library computes the same with a loop over all buckets, which takes a hundred times longer.
    """
    if not histogram.get_total_count():
        return 0.0, 0.0
    counts = _counts(histogram)
    filled = np.flatnonzero(counts)
    lowest_ns, width_ns = _buckets(histogram, filled)
    middle_ns, weights = (lowest_ns + (width_ns >> 1)).astype(float), counts[filled]
    mean_ns = float(np.average(middle_ns, weights=weights))
    return mean_ns, float(np.sqrt(np.average((middle_ns - mean_ns) ** 2, weights=weights)))


def _counts(histogram: HdrHistogram) -> NDArray[np.int64]:
    found: NDArray[np.int64] = np.ctypeslib.as_array(histogram.counts)[: histogram.counts_len].astype(
        np.int64
    )
    return found


def _buckets(
    histogram: HdrHistogram, filled: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest value and the width of buckets, numbered as in the library.

    Halves that double in width, the first one whole.
    """
    half_magnitude = histogram.sub_bucket_half_count_magnitude
    half = 1 << half_magnitude
    bucket = np.maximum((filled >> half_magnitude) - 1, 0) + histogram.unit_magnitude
    inside = (filled & (half - 1)) + np.where(filled >= half, half, 0)
    return inside << bucket, np.int64(1) << bucket


def matrix(rows: list[list[HdrHistogram]], where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Put histograms side by side: counts of shape (rows, buckets) and the buckets' largest values in ns.

    Those of one row are added up. Only buckets in which something is are there.

    Raises:
        LabError: when they do not have the same buckets.
    """
    everything = [histogram for row in rows for histogram in row]
    shapes = {(one.unit_magnitude, one.sub_bucket_half_count_magnitude, one.counts_len) for one in everything}
    if len(shapes) != 1:
        raise LabError(f"{where}: the histograms of the seconds do not have the same buckets")
    *_, length = shapes.pop()
    counts = np.zeros((len(rows), length), dtype=np.int64)
    for place, histograms in enumerate(rows):
        for histogram in histograms:
            if histogram.get_total_count():
                counts[place] += _counts(histogram)
    filled = np.flatnonzero(counts.any(axis=0))
    lowest_ns, width_ns = _buckets(everything[0], filled)
    return counts[:, filled], lowest_ns + width_ns - 1


def curve(histogram: HdrHistogram) -> list[DistributionPoint]:
    """Return the cumulative distribution at some sixty shares, as far as ten values lie above."""
    count = histogram.get_total_count()
    shares = [share for share in _CURVE_SHARES if count * (1 - share) >= ABOVE_MIN]
    values_ns = values_at(histogram, [100 * share for share in shares])
    return [
        DistributionPoint(share=share, response_ns=value_ns)
        for share, value_ns in zip(shares, values_ns, strict=True)
    ]
