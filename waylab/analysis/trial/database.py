"""What a trial's database did for each request and each message: transactions, bytes written ahead, syncs.

Counted over the whole run of the load, warm-up included: the server publishes its counts late, but loses none.
"""

from waylab.runfolder.load import LoadSummary
from waylab.runfolder.trial import TrialOutcome

# The server's counters by the name of the cost that is made of them.
_COUNTED = {
    "commits": "commits",
    "wal_bytes": "wal_written_to_bytes",
    "wal_records": "wal_records",
    "wal_full_pages": "wal_full_pages",
    "wal_syncs": "wal_syncs",
}
# Operations that store a message.
_SENDS = ("send", "send-to")


def database_use(outcome: TrialOutcome, load: LoadSummary) -> dict[str, float]:
    """Return `commits_per_request`, `wal_bytes_per_request` and so on; `_per_message` by messages that were sent.

    Empty for a trial without a database. WAL bytes are the increase of the log's position, page headers included.
    """
    if outcome.database is None or not outcome.database.before or not outcome.database.after:
        return {}
    before, after = outcome.database.before, outcome.database.after
    requests = load.totals.requests_answered or load.totals.requests
    sent = _sent_share(load) * requests
    found = {}
    for name, counter in _COUNTED.items():
        first, last = before.get(counter), after.get(counter)
        if first is None or last is None:
            continue
        if requests:
            found[f"{name}_per_request"] = (last - first) / requests
        if sent:
            found[f"{name}_per_message"] = (last - first) / sent
    return found


def _sent_share(load: LoadSummary) -> float:
    """Return the share of the requests in the window that store a message."""
    operations = load.operations.by_name()
    sends = sum(operations[name].count for name in _SENDS if name in operations)
    return sends / load.operations.all.count if load.operations.all.count else 0.0
