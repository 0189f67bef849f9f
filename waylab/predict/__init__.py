"""What the models say beside what was measured, honestly: `predictions.json`."""

from waylab.predict.described import ModelErrors, model_errors
from waylab.predict.rules import check_models
from waylab.predict.run import predict, read_predictions

__all__ = ["ModelErrors", "check_models", "model_errors", "predict", "read_predictions"]
