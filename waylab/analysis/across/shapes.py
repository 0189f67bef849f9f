"""The shape of response times, from merged histograms: bars of equal width and a gamma distribution beside them."""

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from waylab.analysis.statistics.gamma import Gamma, fit_gamma
from waylab.analysis.trial import histograms
from waylab.errors import LabError
from waylab.runfolder.analysis import GammaFit, Shape, ShapeBar

_BARS = 40
# The slowest requests would squeeze all others into the first bar.
_SHOWN_PERCENT = 99.0
_COUNT_MIN = 200


def shape(histogram: HdrHistogram, where: str) -> Shape | None:
    """Density of the response times up to their 99th percentile, and the gamma fit; None for few requests."""
    count = histogram.get_total_count()
    if count < _COUNT_MIN:
        return None
    counts, upper_ns = histograms.matrix([[histogram]], where)
    # A bucket is a thousandth wide, far narrower than a bar.
    edges = np.linspace(
        0.98 * float(upper_ns[0]), histograms.values_at(histogram, [_SHOWN_PERCENT])[0] + 1, _BARS + 1
    )
    seen, _ = np.histogram(upper_ns, bins=edges, weights=counts[0])
    widths_ms = np.diff(edges) * 1e-6
    gamma, text = _gamma(upper_ns, counts[0])
    fitted = None if gamma is None else np.diff(gamma.share_below(edges)) / widths_ms
    return Shape(
        bars=[
            ShapeBar(
                from_ns=float(edges[bar]),
                to_ns=float(edges[bar + 1]),
                density_per_ms=float(seen[bar] / count / widths_ms[bar]),
                gamma_per_ms=None if fitted is None else float(fitted[bar]),
            )
            for bar in range(_BARS)
        ],
        gamma=None
        if gamma is None
        else GammaFit(shape=gamma.shape, scale_ns=gamma.scale, distance=gamma.distance),
        text=text,
    )


def _gamma(values_ns: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[Gamma | None, str]:
    try:
        found = fit_gamma(values_ns, counts)
    except LabError as error:
        return None, str(error)
    said = (
        f"gamma with shape {found.shape:.3g} and scale {found.scale * 1e-6:.3g} ms, "
        f"a description of these times: the distributions differ by {100 * found.distance:.1f} % at most"
    )
    return found, said
