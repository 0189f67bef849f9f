"""Numbers about one run: from the files of its trials to `analysis.json`. No plots, no processes, no models."""

from waylab.analysis.pooled import findings_of
from waylab.analysis.run import analyse, analyse_trial, read_analysis

__all__ = ["analyse", "analyse_trial", "findings_of", "read_analysis"]
