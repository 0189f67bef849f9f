"""Errors in a model: its description, its load, or a solver that cannot handle it."""


class ModelError(ValueError):
    """A description breaks a rule; the message names the field and the rule."""

    def __init__(self, where: str, rule: str) -> None:
        super().__init__(f"{where}: {rule}")
        self.where = where
        self.rule = rule


class UnstableError(ModelError):
    """Arrivals reach the service capacity: the queue has no steady state, so there is nothing to predict."""

    def __init__(self, where: str, utilisation: float) -> None:
        super().__init__(where, f"is unstable: utilisation {utilisation:.4g} is not below 1")
        self.utilisation = utilisation


class AssumptionError(ModelError):
    """A solver cannot handle a feature of the model; the message names the assumption that fails."""

    def __init__(self, solver: str, assumption: str, fact: str) -> None:
        super().__init__(solver, f"assumes {assumption}, but {fact}")
        self.solver = solver
        self.assumption = assumption
        self.fact = fact
