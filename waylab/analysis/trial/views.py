"""The same requests seen from both ends of a connection: client and server records joined on (port, sequence)."""

import numpy as np
from numpy.typing import NDArray

from waylab.records import Records
from waylab.runfolder.trial_numbers import ProxyView, ServerView

# How many requests with the same port and sequence are looked at: of the prefill, and of so many proxies.
_SAME_KEY_MAX = 4


def join(
    client: Records, server: Records, window_ns: tuple[int, int]
) -> tuple[NDArray[np.void], NDArray[np.void], int]:
    """Return the client's and the server's rows of the same requests, in the same order, and how many had no partner.

    Only requests that the client intended and completed within the window. A port may be used several times (by
    the prefill, then by a client; towards two proxies at once), so the server must have received the request while
    the client waited for it. If stamps were converted from another clock, the error of the conversion is tolerated.
    """
    error_ns = np.uint64(client.clock_error_ns + server.clock_error_ns)
    mine = client.parents
    mine = mine[
        (mine["intended"] >= window_ns[0]) & (mine["completed"] <= window_ns[1]) & (mine["outcome"] == 0)
    ]
    theirs = server.parents
    theirs = theirs[theirs["received"] + error_ns >= window_ns[0]]
    my_keys, their_keys = _keys(mine), _keys(theirs)
    order = np.argsort(their_keys, kind="stable")
    place = np.searchsorted(their_keys[order], my_keys)
    place = np.minimum(place, max(0, len(order) - 1))
    if not len(order) or not len(mine):
        return mine[:0], theirs[:0], len(mine)
    chosen, same = order[place], np.zeros(len(mine), dtype=bool)
    for further in range(_SAME_KEY_MAX):
        candidate = order[np.minimum(place + further, len(order) - 1)]
        received = theirs["received"][candidate]
        fits = ~same & (their_keys[candidate] == my_keys)
        fits &= (received + error_ns >= mine["issued"]) & (received <= mine["completed"] + error_ns)
        chosen, same = np.where(fits, candidate, chosen), same | fits
    return mine[same], theirs[chosen][same], int(len(mine) - same.sum())


def proxy_view(client: Records, proxy: Records, window_ns: tuple[int, int]) -> ProxyView[float] | None:
    """Compare the client's response time with the time within the proxy, for the same requests.

    The difference is what the proxy cannot see: the network, and waiting for a CPU on either side.
    """
    mine, theirs, alone = join(client, proxy, window_ns)
    if not len(mine):
        return None
    response_ns = _ns(mine["completed"], mine["intended"])
    inside_ns = _ns(theirs["replied"], theirs["received"])
    return ProxyView(
        joined=len(mine),
        unmatched=alone,
        client_mean_ns=float(response_ns.mean()),
        client_p95_ns=float(np.percentile(response_ns, 95)),
        proxy_mean_ns=float(inside_ns.mean()),
        proxy_p95_ns=float(np.percentile(inside_ns, 95)),
        difference_mean_ns=float((response_ns - inside_ns).mean()),
        before_mean_ns=float(_ns(theirs["received"], mine["intended"]).mean()),
        after_mean_ns=float(_ns(mine["completed"], theirs["replied"]).mean()),
    )


def server_view(client: Records, cache: Records, window_ns: tuple[int, int]) -> ServerView[float] | None:
    """Compare the client's response time with the time in the embedded server, for the same requests.

    The sojourn ends when the service ends (`served`): a reply that leaves late did not keep a worker busy,
    so its lateness belongs to the delay, like the network.
    """
    mine, theirs, alone = join(client, cache, window_ns)
    if not len(mine):
        return None
    response_ns = _ns(mine["completed"], mine["intended"])
    sojourn_ns = _ns(theirs["served"], theirs["received"])
    return ServerView(
        joined=len(mine),
        unmatched=alone,
        client_mean_ns=float(response_ns.mean()),
        sojourn_mean_ns=float(sojourn_ns.mean()),
        wait_mean_ns=float(_ns(theirs["started"], theirs["received"]).mean()),
        service_mean_ns=float(_ns(theirs["served"], theirs["started"]).mean()),
        late_mean_ns=float(_ns(theirs["replied"], theirs["served"]).mean()),
        delay_mean_ns=float((response_ns - sojourn_ns).mean()),
    )


def _keys(rows: NDArray[np.void]) -> NDArray[np.uint64]:
    return (rows["port"].astype(np.uint64) << np.uint64(32)) | rows["sequence"].astype(np.uint64)


def _ns(later: NDArray[np.uint64], earlier: NDArray[np.uint64]) -> NDArray[np.int64]:
    return later.astype(np.int64) - earlier.astype(np.int64)
