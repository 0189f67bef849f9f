"""What the models say beside what was measured, honestly: `predictions.json`."""

from waylab.predict.rules import check_models
from waylab.predict.run import predict, read_predictions

__all__ = ["check_models", "predict", "read_predictions"]
