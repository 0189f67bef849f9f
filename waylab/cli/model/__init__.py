"""The command `waylab model`: queueing models from the command line."""
