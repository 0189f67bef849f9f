"""The layered model of a system that was measured in a run: centres, shared cores, slots held meanwhile."""

from waylab.fit.layered.model import FittedLayered, LayeredModel

__all__ = ["FittedLayered", "LayeredModel"]
