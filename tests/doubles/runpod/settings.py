"""What a test or a person sets in the double while it serves, by name; see README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.doubles.runpod.double import RunPodDouble


def settle(double: RunPodDouble, given: dict[str, Any]) -> None:
    """Set each thing that is given. Raises: LookupError for a name that nothing has."""
    for name, value in given.items():
        if name not in _SETTINGS:
            raise LookupError(f"setting {name!r}: there is none; {sorted(_SETTINGS)} exist")
        _SETTINGS[name](double, value)


def _free(double: RunPodDouble, value: Any) -> None:
    for gpu, cloud, count in value:
        double.catalogue.free[gpu, cloud] = int(count)


def _prices(double: RunPodDouble, value: Any) -> None:
    for gpu, cloud, usd in value:
        double.catalogue.reprice(gpu, cloud, float(usd))


def _durations(double: RunPodDouble, value: Any) -> None:
    for name, seconds in value.items():
        if not hasattr(double.pods.durations, name):
            raise LookupError(f"duration {name!r}: there is none")
        setattr(double.pods.durations, name, float(seconds))


def _balance(double: RunPodDouble, value: Any) -> None:
    double.renting.balance = float(value)


def _list_lag(double: RunPodDouble, value: Any) -> None:
    double.renting.list_lag_s = float(value)


def _gone_lag(double: RunPodDouble, value: Any) -> None:
    double.renting.gone_lag_s = float(value)


def _forbidden(double: RunPodDouble, value: Any) -> None:
    double.catalogue.forbidden = set(value)


def _quotas(double: RunPodDouble, value: Any) -> None:
    double.limits.quotas = {window: int(quota) for window, quota in value.items()}


def _sshd_images(double: RunPodDouble, value: Any) -> None:
    double.pods.sshd_images = tuple(value)


def _api_keys(double: RunPodDouble, value: Any) -> None:
    double.keys = {key: bool(may_change) for key, may_change in value.items()}


_SETTINGS: dict[str, Callable[[RunPodDouble, Any], None]] = {
    "free": _free,
    "prices": _prices,
    "durations": _durations,
    "balance": _balance,
    "list_lag_s": _list_lag,
    "gone_lag_s": _gone_lag,
    "forbidden": _forbidden,
    "quotas": _quotas,
    "sshd_images": _sshd_images,
    "api_keys": _api_keys,
}
