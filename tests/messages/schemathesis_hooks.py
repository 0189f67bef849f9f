"""What schemathesis is told about the message service besides its description."""

import schemathesis

WAIT_MAX_MS = 20


@schemathesis.hook
def before_call(context, case, kwargs):
    """Shorten long polls, and part what is valid alone but not together. What is not valid stays as it is."""
    query = case.query if isinstance(case.query, dict) else {}
    if is_time(query.get("wait")):
        query["wait"] = f"{WAIT_MAX_MS}ms"
    part(query)
    if isinstance(case.body, dict):
        messages = case.body.get("messages")
        for message in messages if isinstance(messages, list) else []:
            part(message)
        if case.body.get("dead_letter_queue") == (case.path_parameters or {}).get("queue", ""):
            case.body["dead_letter_queue"] = "another"


def part(message):
    """Drop a delay beside an expiry: it must be the shorter one."""
    if isinstance(message, dict) and is_time(message.get("expiry")) and is_time(message.get("delay")):
        del message["delay"]


def is_time(text):
    """Whether it is what the service takes: digits and a unit."""
    if not isinstance(text, str) or not text.endswith(("ms", "s", "m")):
        return False
    number = text.removesuffix("s").removesuffix("m")
    return number.isascii() and number.isdigit()
