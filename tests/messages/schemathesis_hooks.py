"""Hooks that tell schemathesis what the description of the message service cannot express."""

import re

import schemathesis

WAIT_MAX_MS = 20
EXPIRY_MAX = "9600h"


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shorten long polls, and separate fields that are valid only alone. Invalid values stay as they are."""
    query = case.query if isinstance(case.query, dict) else {}
    if is_time(query.get("wait")):
        query["wait"] = f"{WAIT_MAX_MS}ms"
    separate(query)
    if isinstance(case.body, dict):
        messages = case.body.get("messages")
        for message in messages if isinstance(messages, list) else []:
            separate(message)
        # No delay of a message may be longer than the expiry of its queue.
        if messages is None and is_time(case.body.get("expiry")) and not case.body["expiry"].startswith("0"):
            case.body["expiry"] = EXPIRY_MAX
        if case.body.get("dead_letter_queue") == (case.path_parameters or {}).get("queue", ""):
            case.body["dead_letter_queue"] = "another"


def separate(message):
    """Remove a delay if there is an expiry, because the delay must be shorter."""
    if isinstance(message, dict) and is_time(message.get("expiry")) and is_time(message.get("delay")):
        del message["delay"]


def is_time(text):
    """Return whether the text is a duration: a number and a unit."""
    return isinstance(text, str) and bool(re.fullmatch(r"[0-9]+(\.[0-9]+)?(ms|s|m|h)", text))
