"""Provider kinds that are available for a test alone."""

from collections.abc import Iterator
from contextlib import contextmanager

from activities.providers import registry
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import COMING, TRAITS


@contextmanager
def available(kind: ProviderKind) -> Iterator[None]:
    """The kind has its traits meanwhile, as if it were available."""
    before = dict(TRAITS)
    TRAITS[kind] = {**COMING, **before}[kind]
    try:
        yield
    finally:
        TRAITS.clear()
        TRAITS.update(before)
        if kind not in before:
            registry.KINDS.pop(kind, None)
