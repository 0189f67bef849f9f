"""The command `waylab`: arguments in, exit codes out. The only part that sees all others."""

from waylab.cli.main import main

__all__ = ["main"]
