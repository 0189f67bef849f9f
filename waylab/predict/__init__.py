"""What the models say beside what was measured, honestly: `predictions.json`."""

from waylab.predict.run import predict, read_predictions

__all__ = ["predict", "read_predictions"]
