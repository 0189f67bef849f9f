"""What the models say beside what was measured, honestly: `predictions.json`."""

from waylab.predict.described import ModelDifferences, descriptions, model_differences
from waylab.predict.left_out import LeftOutErrors, left_out_errors
from waylab.predict.operational import Bound, ResponseLaw, bounds, response_law
from waylab.predict.rules import check_models
from waylab.predict.run import predict, read_predictions
from waylab.predict.two_classes import TwoClassPrediction, two_class_predictions

__all__ = [
    "Bound",
    "LeftOutErrors",
    "ModelDifferences",
    "ResponseLaw",
    "TwoClassPrediction",
    "bounds",
    "check_models",
    "descriptions",
    "left_out_errors",
    "model_differences",
    "predict",
    "read_predictions",
    "response_law",
    "two_class_predictions",
]
