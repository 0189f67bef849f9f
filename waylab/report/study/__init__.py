"""The parts of a study's page beyond the findings: all configurations of an experiment, precision, and models."""
