"""Checks of the numbers that a queue is made from. Every failure is one line: the field and the rule."""

import math
from collections.abc import Mapping
from numbers import Integral, Real

from waylab.models.errors import ModelError, UnstableError
from waylab.models.service import Service

_LEAST, _LARGEST = 1e-100, 1e100


def check_rates(queue: str, rates: Mapping[str, float]) -> None:
    """Check that all are finite numbers above zero.

    Raises:
        ModelError: naming the field.
    """
    for name, rate in rates.items():
        if not (_is_number(rate) and math.isfinite(rate) and rate > 0):
            raise ModelError(f"{queue}: {name}", f"must be a finite number > 0, not {rate}")
        _check_size(f"{queue}: {name}", float(rate))


def check_at_least_zero(queue: str, numbers: Mapping[str, float]) -> None:
    """Check that all are finite numbers of at least zero.

    Raises:
        ModelError: naming the field.
    """
    for name, number in numbers.items():
        if not (_is_number(number) and math.isfinite(number) and number >= 0):
            raise ModelError(f"{queue}: {name}", f"must be a finite number >= 0, not {number}")
        # Next to nothing is as good as 0 here.
        _check_size(f"{queue}: {name}", max(_LEAST, float(number)))


def check_whole(queue: str, name: str, number: int, least: int) -> None:
    """Check for a whole number of at least `least`.

    Raises:
        ModelError: naming the field.
    """
    if isinstance(number, bool) or not isinstance(number, Integral) or number < least:
        raise ModelError(f"{queue}: {name}", f"must be a whole number >= {least}, not {number}")


def check_stable(queue: str, utilisation: float) -> None:
    """Check that a queue is stable.

    Raises:
        UnstableError: for a utilisation of 1 or more.
    """
    if not utilisation < 1:
        raise UnstableError(queue, utilisation)


def as_service(queue: str, service: Service | float) -> Service:
    """Turn a plain number, the mean of an exponential time, into a Service.

    Raises:
        ModelError: unless the mean is above zero.
    """
    if not isinstance(service, Service):
        check_rates(queue, {"service": service})
        return Service(float(service))
    check_rates(queue, {"service.mean_s": service.mean_s})
    return service


def _check_size(where: str, number: float) -> None:
    """Refuse sizes whose products and quotients would not be finite."""
    if number != 0 and not _LEAST <= number <= _LARGEST:
        raise ModelError(where, f"must be from {_LEAST:g} to {_LARGEST:g}, not {number:g}")


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
