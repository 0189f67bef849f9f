"""Commands whose modules are read when they are called: statistics and charts take seconds to import, help must not."""

import argparse
import importlib
from collections.abc import Callable
from typing import Any


def later(module: str, name: str) -> Callable[[argparse.Namespace], Any]:
    """Make a command of a function that nobody has imported yet."""

    def call(arguments: argparse.Namespace) -> Any:
        return getattr(importlib.import_module(module), name)(arguments)

    return call
