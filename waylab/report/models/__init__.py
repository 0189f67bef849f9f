"""Drawings and terminal tables of models, from their summaries. Computes nothing."""

from waylab.report.models.charts import distribution_chart, sweep_chart, usl_chart, utilisation_bars
from waylab.report.models.figure import ModelFigure
from waylab.report.models.network_drawing import network_drawing
from waylab.report.models.write import write_figures

__all__ = [
    "ModelFigure",
    "distribution_chart",
    "network_drawing",
    "sweep_chart",
    "usl_chart",
    "utilisation_bars",
    "write_figures",
]
