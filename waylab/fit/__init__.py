"""From measurement to the parameters of a model, or the reason why the model does not apply."""

from waylab.fit.black_box import fit_black_box
from waylab.fit.holding import fit_holding
from waylab.fit.message_stations import fit_message_stations
from waylab.fit.parameters import (
    BlackBoxParameters,
    Fit,
    FittedStation,
    HoldingParameters,
    ModelParameters,
    NotApplicableError,
    RepairmanParameters,
    SlotParameters,
    StationParameters,
)
from waylab.fit.repairman import fit_repairman_delay, fit_repairman_raw
from waylab.fit.slots import fit_slots

__all__ = [
    "BlackBoxParameters",
    "Fit",
    "FittedStation",
    "HoldingParameters",
    "ModelParameters",
    "NotApplicableError",
    "RepairmanParameters",
    "SlotParameters",
    "StationParameters",
    "fit_black_box",
    "fit_holding",
    "fit_message_stations",
    "fit_repairman_delay",
    "fit_repairman_raw",
    "fit_slots",
]
