"""wrk2 and wrk: the text of `--latency`, of which the summary alone (without `--latency`) is also read.

Both print the same lines (https://github.com/giltene/wrk2, src/wrk.c and src/units.c). wrk2 also prints "Thread
calibration" and the percentile spectrum of HdrHistogram, in milliseconds. wrk2 corrects for coordinated omission, wrk
does not.
"""

import re

from waylab.adapters.foreign import ForeignFile, ForeignTimes, ForeignTrial, ReadOptions, WrongFileError, same
from waylab.runfolder.run import LoadSettings

_NS = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
_TIME = r"([0-9.]+)(us|ms|s|m|h)"
_CONNECTIONS = re.compile(r"^\s*(\d+) threads and (\d+) connections\s*$", re.M)
_AVERAGE = re.compile(rf"^\s*Latency\s+{_TIME}\s+{_TIME}\s", re.M)
_DONE = re.compile(rf"^\s*(\d+) requests in {_TIME}, ", re.M)
_RATE = re.compile(r"^\s*Requests/sec:\s+([0-9.]+)\s*$", re.M)
_QUANTILE = re.compile(rf"^\s*([0-9.]+)%\s+{_TIME}\s*$", re.M)
_SPECTRUM = re.compile(r"^\s*([0-9.]+)\s+(0\.[0-9]+|1\.0+)\s+(\d+)\s+(?:[0-9.]+|inf)\s*$", re.M)
_MEAN = re.compile(r"#\[Mean\s*=\s*([0-9.]+), StdDeviation\s*=\s*([0-9.]+)\]")
_TOTAL = re.compile(r"#\[Max\s*=\s*[0-9.]+, Total count\s*=\s*(\d+)\]")
_SOCKET = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")
_STATUS = re.compile(r"Non-2xx or 3xx responses: (\d+)")
_CORRECTED = (
    "an open loop over a fixed number of connections; a response time starts when the request is due, so that the "
    "waits behind a stall count (corrected for coordinated omission); the first 10 s are not in the response times"
)
_SENT = (
    "a closed loop; a response time starts when the request is sent, so that a stall delays one request of each "
    "connection and the requests that it held back are missing (coordinated omission)"
)
_SHARES = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999)


def detect(file: ForeignFile) -> bool:
    """Return whether this is the text of wrk2 or wrk."""
    return bool(_CONNECTIONS.search(file.text)) or "Thread Stats" in file.text


def read(file: ForeignFile, options: ReadOptions) -> list[ForeignTrial]:
    """Return the trial of a run of wrk2 or wrk."""
    text = file.text
    if len(_CONNECTIONS.findall(text)) > 1:
        raise WrongFileError("has the output of several runs; give a file for each")
    connections, done, rate = _CONNECTIONS.search(text), _DONE.search(text), _RATE.search(text)
    average = _AVERAGE.search(text)
    if not connections or not done or not rate or not average:
        raise WrongFileError(
            "is the beginning of a run of wrk2 or wrk only; measure again and keep all of its output"
        )
    requests, measured_s = int(done[1]), _ns(done[2], done[3]) / 1e9
    throughput = _number(rate[1])
    if not requests or not measured_s:
        raise WrongFileError(f"has {requests} requests in {measured_s:g} s; measure again")
    # The length is printed with two decimals, in minutes for long runs.
    same(
        throughput,
        requests / measured_s,
        f"{throughput:g} requests/sec, but {requests} requests in {measured_s:g} s",
    )
    two = "Thread calibration" in text or "HdrHistogram" in text or "Detailed Percentile spectrum" in text
    socket, status = _SOCKET.search(text), _STATUS.search(text)
    errors = sum(map(int, socket.groups())) if socket else 0
    failed = int(status[1]) if status else 0
    return [
        ForeignTrial(
            tool="wrk2" if two else "wrk",
            latency=_CORRECTED if two else _SENT,
            corrected=two,
            loop="open" if two else "closed",
            throughput_per_s=throughput * max(0, requests - failed) / requests,
            operations={"all": _times(text, average, requests)},
            load=LoadSettings(clients=int(connections[2]), threads=int(connections[1])),
            measured_s=requests / throughput,
            requests=requests,
            errors=errors + failed,
            unknown={"hit_ratio": "HTTP has no hits"},
        )
    ]


def _times(text: str, average: re.Match[str], requests: int) -> ForeignTimes:
    # Scripts may print further percentiles at the end, and `--u_latency` prints a second, uncorrected distribution.
    text = re.split(r"Uncorrected Latency|^\s*\d+ requests in ", text, maxsplit=1, flags=re.M)[0]
    mean_ns, std_ns = _ns(average[1], average[2]), _ns(average[3], average[4])
    exact, total = _MEAN.search(text), _TOTAL.search(text)
    if exact:
        mean_ns, std_ns = _number(exact[1]) * 1e6, _number(exact[2]) * 1e6
    found = {f"{_number(share):g}": _ns(value, unit) for share, value, unit in _QUANTILE.findall(text)}
    spectrum = [(_number(share), _number(value) * 1e6) for value, share, _ in _SPECTRUM.findall(text)]
    for wanted in _SHARES if spectrum else ():
        # The spectrum has exact steps at some shares only; the printed ones are among them, or the next above.
        above = next((one for one in spectrum if one[0] >= wanted - 1e-9), None)
        if above and abs(above[0] - wanted) < 0.02 * (1 - wanted):
            found[f"{100 * wanted:g}"] = above[1]
    found.pop("100", None)
    return ForeignTimes(int(total[1]) if total else requests, mean_ns, std_ns, found)


def _ns(value: str, unit: str) -> float:
    return _number(value) * _NS[unit]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WrongFileError(f"has {text[:20]!r}, which should be a number") from None
