"""The version of the lab, in a file of its own: every part may import it, and it imports nothing."""

__version__ = "0.1.0"
