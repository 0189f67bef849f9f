"""The one kind of error that a user sees: a single line that says what, where, and what to do.

Knows nothing of the lab, so that every part may use it.
"""


class LabError(Exception):
    """What went wrong, in one line fit for the terminal; never shown with a traceback."""

    def __str__(self) -> str:
        """Fold the message into one line."""
        return " ".join(" ".join(str(part) for part in self.args).split())

    def _render_traceback_(self) -> list[str]:
        """Return what a notebook shows, which looks for a method of this name: the line without a traceback."""
        return [f"waylab: {self}"]
