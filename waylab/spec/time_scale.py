"""The settings of a trial at the time scale of its testbed: random times and time-outs multiplied, rates divided.

`warm_up_s` and `test_time_s` stay as they are: they say how long the lab measures.
"""

import re
from dataclasses import replace

from waylab.spec.quantities import duration_s
from waylab.spec.schema import TrialSettings

_DURATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:ns|us|ms|s|m)(?![\w.])")


def at_time_scale(settings: TrialSettings, scale: float) -> TrialSettings:
    """Return the settings whose times are `scale` times as long; ValueError names a time that cannot be scaled."""
    if scale == 1:
        return settings
    system, load = settings.system, settings.load
    backends, proxy = system.backends, system.proxy
    return replace(
        settings,
        system=replace(
            system,
            backends=replace(
                backends,
                service_time=_scaled("system.backends.service_time", backends.service_time, scale),
            ),
            proxy=replace(
                proxy,
                backend_timeout=_scaled("system.proxy.backend_timeout", proxy.backend_timeout, scale),
                fault_write_poll=_scaled("system.proxy.fault_write_poll", proxy.fault_write_poll, scale),
                fault_write_hold=_scaled("system.proxy.fault_write_hold", proxy.fault_write_hold, scale),
            ),
        ),
        load=replace(
            load,
            rate=load.rate / scale,
            think_time=_scaled("load.think_time", load.think_time, scale),
            arrivals=_scaled("load.arrivals", load.arrivals, scale),
        ),
    )


def _scaled(name: str, text: str, scale: float) -> str:
    """Multiply every duration of a distribution of times."""
    if text in ("", "none", "constant", "poisson"):
        return text
    scaled = _DURATION.sub(lambda found: f"{round(duration_s(found[0]) * scale * 1e9)}ns", text)
    if scaled == text:
        raise ValueError(
            f"{name} = {text!r}: has no duration to multiply by testbed.time_scale = {scale:g}; "
            "write the distribution with its durations, for example exp:1ms"
        )
    return scaled
