"""Runs the trials of a plan and keeps everything that a stranger needs to judge and repeat them.

Knows nothing of analysis: what it leaves behind is the run folder.
"""

from waylab.run.campaign import Campaign, InterruptedRunError, Step, create_run, resume_run, unfinished_runs

__all__ = ["Campaign", "InterruptedRunError", "Step", "create_run", "resume_run", "unfinished_runs"]
