"""The registry of provider kinds: each kind with traits has a module of its own.

The module of a kind, `activities/providers/<kind>/kind.py`, is imported when the kind is first
used, together with its provider's libraries.
"""

from importlib import import_module

from activities.providers.base import Driver, Kind, RequestRefused
from workflows.contracts.providers import Check
from workflows.rules.catalogue.providers import TRAITS

FOLDER = "activities.providers"
KINDS: dict[str, Kind] = {}
"""The kinds that this process has used, by name; `kind_of` fills it."""


def kind_of(name: str) -> Kind:
    """The provider kind of this name. Raises: RequestRefused, for a kind that is not available."""
    if name not in KINDS:
        if name not in TRAITS:
            raise RequestRefused(f"provider kind {unavailable(name)}")
        found: Kind = import_module(f"{FOLDER}.{name}.kind").KIND
        KINDS[name] = found
    return KINDS[name]


def unavailable(name: str) -> str:
    """The message for a provider kind that is not available."""
    return f"{name}: not available here; these are: {', '.join(sorted(TRAITS))}"


def checks_of(kind: str, provider_id: str) -> tuple[Check, ...]:
    """The checks of a provider; the only one says so, where the packages of its kind are missing.

    Blocking. Raises: Unavailable; RequestRefused, for a kind that is not available.
    """
    found = kind_of(kind)
    missing = found.missing()
    if not missing:
        return found.checks(provider_id)
    return (
        Check(
            name="package",
            status="failed",
            detail=f"the server has not got {', '.join(missing)}",
            fix=f"install baseload[{kind}] there, start it again, and check the provider again",
        ),
    )


def driver_of(kind: str, provider_id: str) -> Driver:
    """The driver of a provider's machines. Raises: RequestRefused, for a kind that has none."""
    found = kind_of(kind)
    return found.required("driver", found.driver)(provider_id)
