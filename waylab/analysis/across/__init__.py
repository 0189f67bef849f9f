"""The numbers of a run across its trials: configurations, comparisons, effects, findings."""
