"""What a test or a person sets in the double while it serves, by name; see README.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.doubles.vastai.market import Offer

if TYPE_CHECKING:
    from tests.doubles.vastai.double import VastDouble


def settle(double: VastDouble, given: dict[str, Any]) -> None:
    """Set each thing that is given. Raises: LookupError for a name that nothing has."""
    for name, value in given.items():
        if name not in _SETTINGS:
            raise LookupError(f"setting {name!r}: there is none; {sorted(_SETTINGS)} exist")
        _SETTINGS[name](double, value)


def _offers(double: VastDouble, value: Any) -> None:
    double.market.offers.clear()
    for each in value:
        double.market.add(Offer(**each))


def _withdrawn(double: VastDouble, value: Any) -> None:
    for ask in value:
        double.market.withdraw(int(ask))


def _durations(double: VastDouble, value: Any) -> None:
    for name, seconds in value.items():
        if not hasattr(double.instances.durations, name):
            raise LookupError(f"duration {name!r}: there is none")
        setattr(double.instances.durations, name, float(seconds))


def _balance(double: VastDouble, value: Any) -> None:
    double.account.balance = float(value)


def _list_lag(double: VastDouble, value: Any) -> None:
    double.served.list_lag_s = float(value)


def _gone_lag(double: VastDouble, value: Any) -> None:
    double.served.gone_lag_s = float(value)


def _missing(double: VastDouble, value: Any) -> None:
    double.served.missing_is_200 = bool(value)


def _intervals(double: VastDouble, value: Any) -> None:
    double.limits.intervals = {call: float(seconds) for call, seconds in value.items()}


def _penalties(double: VastDouble, value: Any) -> None:
    double.limits.penalties = {call: float(seconds) for call, seconds in value.items()}


def _searches(double: VastDouble, value: Any) -> None:
    double.limits.searches = int(value)


def _api_keys(double: VastDouble, value: Any) -> None:
    double.keys = set(value)


_SETTINGS: dict[str, Callable[[VastDouble, Any], None]] = {
    "offers": _offers,
    "withdrawn": _withdrawn,
    "durations": _durations,
    "balance": _balance,
    "list_lag_s": _list_lag,
    "gone_lag_s": _gone_lag,
    "missing_is_200": _missing,
    "intervals": _intervals,
    "penalties": _penalties,
    "searches": _searches,
    "api_keys": _api_keys,
}
