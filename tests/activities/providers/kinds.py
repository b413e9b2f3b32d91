"""Provider kinds with capabilities of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from activities.providers import registry
from workflows.contracts.statuses import ProviderKind


@contextmanager
def kind_with(kind: ProviderKind = ProviderKind.GCP, **capabilities: Any) -> Iterator[None]:
    """The kind has these capabilities meanwhile, in place of its own."""
    before = registry.kind_of(kind)
    registry.KINDS[kind] = replace(before, **capabilities)
    try:
        yield
    finally:
        registry.KINDS[kind] = before
