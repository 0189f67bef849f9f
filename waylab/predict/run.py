"""All models on all configurations of a run, their errors, and how far each is off altogether."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waylab import __version__
from waylab.analysis import read_analysis
from waylab.fit import Fit, NotApplicableError
from waylab.models import UnstableError
from waylab.predict.forecasts import MODELS, Model
from waylab.runfolder import paths
from waylab.runfolder.files import read_json, read_run, write_json

CALIBRATION, HELD_OUT = "calibration", "held-out"


def predict(directory: Path) -> dict[str, Any]:
    """Compare every model with every configuration and write the result into the run folder."""
    analysis = read_analysis(directory)
    # Runs of earlier versions have no roles.
    roles = {trial["configuration"]: trial.get("role", "") for trial in read_run(directory)["plan"]}
    configurations = analysis["configurations"]
    calibration = [one for one in configurations if roles[one["name"]] == CALIBRATION]
    held_out = any(role == HELD_OUT for role in roles.values())
    entries = [
        _entry(
            model,
            configuration,
            roles[configuration["name"]],
            calibration if held_out else None,
            configurations,
        )
        for model in MODELS
        for configuration in configurations
    ]
    # A model that says nothing about any configuration for a reason of design would only be noise.
    told = {entry["model"] for entry in entries if entry["parameters"] is not None}
    entries = [entry for entry in entries if entry["model"] in told]
    summary = [_summary(model.name, entries) for model in MODELS if model.name in told]
    content = {
        "format": paths.PREDICTIONS_FORMAT,
        "waylab": __version__,
        "entries": entries,
        "summary": summary,
        "facts": [_fact(part) for part in summary],
    }
    write_json(directory / paths.PREDICTIONS, content)
    return read_json(directory / paths.PREDICTIONS, paths.PREDICTIONS_FORMAT, "")


def read_predictions(directory: Path) -> dict[str, Any]:
    """Read what was predicted for a run."""
    what = f"make it with: waylab analyse {directory}"
    return read_json(directory / paths.PREDICTIONS, paths.PREDICTIONS_FORMAT, what)


def _entry(
    model: Model,
    configuration: dict[str, Any],
    role: str,
    calibration: list[dict[str, Any]] | None,
    configurations: list[dict[str, Any]],
) -> dict[str, Any]:
    """Apply a model to a configuration, with what the calibration configurations say, where there are such."""
    everything = configuration["operations"].get("all")
    measured = {
        "throughput_per_s": configuration["throughput_per_s"]["mean"],
        "response_mean_ns": everything["response_mean_ns"]["mean"] if everything else None,
        "response_p95_ns": everything["percentiles_ns"].get("95") if everything else None,
    }
    entry: dict[str, Any] = {
        "model": model.name,
        "configuration": configuration["name"],
        "x": configuration["x"],
        "series": configuration["series"],
        "role": role,
        "applies": False,
        "reason": None,
        "source": None,
        "parameters": None,
        "measured": measured,
        "predicted": None,
        "error": {},
    }
    try:
        fit = _fit(model, configuration, calibration, configurations)
        entry |= {"parameters": fit.parameters, "source": fit.source}
        predicted = model.forecast(fit.parameters)
    except (NotApplicableError, UnstableError, ValueError) as error:
        return {**entry, "reason": str(error)}
    error = {
        name: predicted[name] / measured[name] - 1
        for name in measured
        if predicted.get(name) and measured[name]
    }
    return {**entry, "applies": True, "predicted": predicted, "error": error}


def _fit(
    model: Model,
    configuration: dict[str, Any],
    calibration: list[dict[str, Any]] | None,
    configurations: list[dict[str, Any]],
) -> Fit:
    """Fit a model to what may be learned from; where nothing was held out, that is everything."""
    if model.together:
        return model.together(configurations if calibration is None else calibration, configuration)
    assert model.fit, "a model is fitted in one way or the other"
    fit = model.fit(configuration)
    return fit if calibration is None else _with_learned(model, model.fit, fit, calibration)


def _with_learned(
    model: Model,
    fit_one: Callable[[dict[str, Any]], Fit],
    fit: Fit,
    calibration: list[dict[str, Any]],
) -> Fit:
    """Replace what was learned from the configuration itself by what the calibration configurations teach."""
    if not model.learned:
        return fit
    taught = []
    reason = "no calibration configuration was used"
    for one in calibration:
        try:
            taught.append(fit_one(one).parameters)
        except NotApplicableError as error:
            reason = f"no calibration configuration can be fitted: {error}"
    if not taught:
        raise NotApplicableError(reason)
    learned = {name: combine([one[name] for one in taught]) for name, combine in model.learned.items()}
    source = f"{', '.join(learned)} from {len(taught)} calibration configurations; {fit.source}"
    return Fit({**fit.parameters, **learned}, source)


def _summary(name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and largest absolute relative error of a model over the configurations to which it applies.

    Where some were held out, over those only: what a model has learned from says nothing about it.
    """
    mine = [entry for entry in entries if entry["model"] == name]
    held_out = [entry for entry in mine if entry["role"] == HELD_OUT]
    mine = held_out or mine
    summary: dict[str, Any] = {
        "model": name,
        "role": HELD_OUT if held_out else "",
        "configurations": len(mine),
        "applies": sum(entry["applies"] for entry in mine),
        "source": next((entry["source"] for entry in mine if entry["source"]), None),
    }
    for metric in ("throughput_per_s", "response_mean_ns"):
        errors = [abs(entry["error"][metric]) for entry in mine if metric in entry["error"]]
        summary[metric] = {
            "median_error": statistics.median(errors) if errors else None,
            "largest_error": max(errors, default=None),
        }
    return summary


def _fact(summary: dict[str, Any]) -> str:
    """Say in one sentence how far a model is off."""
    kind = "configurations that were held out" if summary["role"] else "configurations"
    head = f"Model {summary['model']}: applies to {summary['applies']} of {summary['configurations']} {kind}"
    parts = [
        f"{name} off by {100 * summary[metric]['median_error']:.1f} % (median), "
        f"{100 * summary[metric]['largest_error']:.1f} % (largest)"
        for name, metric in (("throughput", "throughput_per_s"), ("mean response time", "response_mean_ns"))
        if summary[metric]["median_error"] is not None
    ]
    return "; ".join([head, *parts]) + "."
