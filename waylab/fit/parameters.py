"""What a fit returns."""

from dataclasses import dataclass
from typing import Any


class NotApplicableError(ValueError):
    """The model says nothing about this configuration; the message says which assumption fails."""


@dataclass(frozen=True)
class Fit:
    """Parameters by name, units in the names, and where they come from."""

    parameters: dict[str, Any]
    source: str
