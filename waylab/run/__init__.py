"""Runs the trials of a plan, and writes a run folder with everything needed to judge and repeat them.

Knows nothing of analysis; the two share only the run folder.
"""

from waylab.run.campaign import Campaign, InterruptedRunError, Step, create_run, resume_run, unfinished_runs

__all__ = ["Campaign", "InterruptedRunError", "Step", "create_run", "resume_run", "unfinished_runs"]
