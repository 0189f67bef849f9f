"""Hooks that tell schemathesis what the description of the message service cannot express."""

import re

import schemathesis

WAIT_MAX_S = 0.02
UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
# The limits of durations by the name of the parameter or field. Patterns with limits would have hundreds of characters.
MAX_S = {
    "wait": WAIT_MAX_S,
    "delay": 360 * 3600,
    "expiry": 9600 * 3600,
    "lease": 12 * 3600,
    "backoff": 3600,
}


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shorten long polls, and durations beyond their limits. Invalid values stay as they are."""
    shorten(case.query)
    if isinstance(case.body, dict):
        shorten(case.body)
        messages = case.body.get("messages")
        for message in messages if isinstance(messages, list) else []:
            shorten(message)
        if case.body.get("dead_letter_queue") == (case.path_parameters or {}).get("queue", ""):
            case.body["dead_letter_queue"] = "another"


def shorten(fields):
    """Replace durations beyond the limit by the limit, and those that the service rounds to nothing by a short one."""
    for name, max_s in MAX_S.items():
        text = fields.get(name) if isinstance(fields, dict) else None
        duration_s = seconds(text)
        if duration_s is not None and duration_s > max_s:
            fields[name] = f"{max_s}s"
        elif duration_s is not None and duration_s < UNITS_S["ns"] and re.search("[1-9]", text):
            fields[name] = "1ns"


def seconds(text):
    """Return the duration that the text describes, or None if it describes none."""
    found = isinstance(text, str) and re.fullmatch(
        r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|ms|s|m|h)", text, re.ASCII
    )
    return float(found[1]) * UNITS_S[found[2]] if found else None
