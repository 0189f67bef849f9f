"""Models fitted to tables of trials, and their predictions of configurations that were not measured."""
