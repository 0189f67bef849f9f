"""The operational laws in words, with the unit of their numbers."""

_LAWS = {
    "interactive": "interactive response time law, N = X (R + Z) (requests in flight)",
    "little": "Little\u2019s law, N = X R (requests in flight)",
}


def law_words(name: str) -> str:
    """Return what a law compares: `requests/s at the load generator and at the proxy`."""
    if name.startswith("forced flow, "):
        return f"requests/s at the load generator and at the {name.partition(', ')[2]}"
    if name.startswith("bytes "):
        return f"{name}, at both ends"
    return _LAWS.get(name, name)
