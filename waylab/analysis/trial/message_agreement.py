"""Checks that the counts of messages in one load summary agree with its requests, one line for each that does not.

Numbers that older load generators left out are not checked.
"""

from collections.abc import Iterator

from waylab.analysis.trial import histograms
from waylab.errors import LabError
from waylab.runfolder.load import LoadMessages, LoadSummary
from waylab.runfolder.run import PlannedTrial

# What `waystage load --messages` draws without `--operations`.
_DRAWN = "send:1,pop:1"
# The operations that follow a receive, and those that may find nothing and count as reads (docs/load-summary.md).
_AFTER_RECEIVE = {"acknowledge", "extend", "nack"}
_READS = {"pop", "pop-from", "peek", "peek-from", "waiting", "delete", "receive", *_AFTER_RECEIVE}
# A mix of five requests, whose operations are not drawn one by one.
_FIXED = "d15"


def message_disagreements(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    """Return one line for each contradiction; none for a load of another kind."""
    found = load.messages
    if not load.operations.messages or found is None:
        return
    if load.totals.requests_answered is None:
        yield "the number of answered requests is missing, by which work of the database is divided"
    asked = load.settings.get("messages")
    verify = asked.get("verify") if isinstance(asked, dict) else None
    if verify is not None and verify != found.verified:
        yield f"messages were {'' if found.verified else 'not '}verified, but the setting verify is {verify}"
    yield from _operations(plan, load)
    faults = {name: count for name, count in found.faults().items() if count}
    if load.valid and faults:
        words = ", ".join(f"{count} {name}" for name, count in faults.items())
        yield f"the load generator found its run valid, but counted messages: {words}"
    yield from _seconds(load)
    yield from _deliveries(load, found)


def _operations(plan: PlannedTrial, load: LoadSummary) -> Iterator[str]:
    """Compare the operations with the planned ones, and the number of reads with their sum."""
    planned = plan.load.operations or _DRAWN
    if planned == _FIXED:
        return
    asked = load.settings.get("messages")
    drawn = asked.get("operations") if isinstance(asked, dict) else None
    if drawn is not None and _weights(str(drawn)) != _weights(planned):
        yield f"the load ran with the operations {drawn}, planned: {planned}"
    names = set(_weights(planned))
    names |= _AFTER_RECEIVE if "receive" in names else set()
    strange = [name for name in load.operations.messages if name not in names]
    if strange:
        yield f"there are requests {strange[0]}, planned: {planned}"
    of_reads = sum(one.count for name, one in load.operations.messages.items() if name in _READS)
    reads = load.operations.get
    if reads is not None and reads.count != of_reads:
        yield f"{reads.count} reads, but {of_reads} requests of operations that read"


def _weights(operations: str) -> dict[str, str]:
    """Return the weight of each operation of a text such as send:4,pop:1."""
    parts = [part.partition(":") for part in operations.split(",")]
    return {name.strip(): weight.strip() or "1" for name, _, weight in parts}


def _seconds(load: LoadSummary) -> Iterator[str]:
    """Compare what reads found in each second with their number, which the histograms have."""
    reads = load.operations.get
    # An operation that can find nothing is a read. Whether each is a hit or a miss depends on the operations.
    each = reads is not None and reads.count == (reads.hits or 0) + (reads.misses or 0) and not reads.errors
    for second in load.seconds:
        judged = second.hits + second.misses
        try:
            text = second.histograms.get("get", "")
            count = histograms.decode(text, "a second").get_total_count() if text else 0
        except LabError:
            # Another check reports it.
            return
        if not second.histograms:
            continue
        if judged > count or (each and judged < count and not second.errors):
            yield f"second {second.second}: {judged} reads with or without a message, {count} in its histogram"
            return


def _deliveries(load: LoadSummary, found: LoadMessages) -> Iterator[str]:
    """Compare the messages that clients received in the run with the reads that found one."""
    if found.drained is None or not load.seconds or not found.verified:
        return
    if found.drained > found.received:
        yield f"{found.drained} messages were received after the window, but only {found.received} in all"
    hits = sum(second.hits for second in load.seconds)
    received = found.received - found.drained + found.peeked
    # A request that failed may have delivered a message; one in flight at the end has no second.
    slack = sum(second.errors or 0 for second in load.seconds) + load.totals.errors
    if received > hits + slack:
        yield f"clients received {received} messages, but {hits} reads found one"
