"""From specification to an ordered list of trials, the same for the same seed. Knows nothing of processes."""

from waylab.plan.trials import Plan, Trial, make_plan, trial_as_dict

__all__ = ["Plan", "Trial", "make_plan", "trial_as_dict"]
