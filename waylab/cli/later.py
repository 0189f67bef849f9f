"""Commands whose modules are imported when they are called, because statistics and charts take seconds to import."""

import argparse
import importlib
from collections.abc import Callable
from typing import Any


def later(module: str, name: str) -> Callable[[argparse.Namespace], Any]:
    """Return a command that imports the module of a function and calls it."""

    def call(arguments: argparse.Namespace) -> Any:
        return getattr(importlib.import_module(module), name)(arguments)

    return call
