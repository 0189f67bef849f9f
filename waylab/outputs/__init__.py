"""Reads what other load generators print, in a run of the lab, as the summary of a load (docs/load-summary.md)."""
