"""What a trial's database did for each request and each message: transactions, bytes written ahead, syncs.

Counted over the whole run of the load, warm-up included: the server's own counts are told late, but none is lost.
"""

from typing import Any

# Of the counters that a trial keeps, what each request costs of them.
_COUNTED = {
    "commits": "commits",
    "wal_bytes": "wal_written_to_bytes",
    "wal_records": "wal_records",
    "wal_full_pages": "wal_full_pages",
    "wal_syncs": "wal_syncs",
}
# Operations that put a message in.
_SENDS = ("send", "send-to")


def database_use(result: dict[str, Any], load: dict[str, Any]) -> dict[str, float] | None:
    """Return `commits_per_request`, `wal_bytes_per_request` and so on; `_per_message` by messages that were sent.

    None for a trial without a database. WAL bytes are how far the log was written, page headers included.
    """
    kept = result.get("database") or {}
    before, after = kept.get("before"), kept.get("after")
    if not before or not after:
        return None
    requests = load["totals"].get("requests_answered") or load["totals"]["requests"]
    sent = _sent_share(load) * requests
    found = {}
    for name, counter in _COUNTED.items():
        if after.get(counter) is None or before.get(counter) is None:
            continue
        increase = after[counter] - before[counter]
        if requests:
            found[f"{name}_per_request"] = increase / requests
        if sent:
            found[f"{name}_per_message"] = increase / sent
    return found


def _sent_share(load: dict[str, Any]) -> float:
    """Return which share of the requests in the window put a message in."""
    everything = load["operations"]["all"]["count"]
    operations = load["operations"].get("messages", load["operations"])
    sends = sum(operations[name]["count"] for name in _SENDS if name in operations)
    return sends / everything if everything else 0.0
