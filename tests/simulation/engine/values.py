"""Payloads: by reference, which costs nothing, or encoded as the product encodes them."""

import pkgutil
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import PayloadConverter

import workflows.effects
from workflows.contracts.base import Contract
from workflows.effects.effect import Effect

_ENCODED = PydanticPayloadConverter()


class References(PayloadConverter):
    """Payloads that name a value of this life by its number.

    Contracts are frozen, so that nobody can change a value that another holds.
    """

    def __init__(self) -> None:
        self._values: list[Any] = []

    def to_payloads(self, values: Sequence[Any]) -> list[Payload]:
        first = len(self._values)
        self._values.extend(values)
        return [Payload(data=b"%d" % number) for number in range(first, len(self._values))]

    def from_payloads(
        self, payloads: Sequence[Payload], type_hints: list[type] | None = None
    ) -> list[Any]:
        return [self._value(payload) for payload in payloads]

    def _value(self, payload: Payload) -> Any:
        """The value that a payload names; the details of a failure are encoded always."""
        if "encoding" in payload.metadata:
            return _ENCODED.from_payload(payload)
        return self._values[int(payload.data)]


class Values:
    """The values of one engine; converter: what its workflow instances use."""

    def __init__(self, *, encoded: bool) -> None:
        self.is_encoded = encoded
        self.converter: PayloadConverter = PydanticPayloadConverter() if encoded else References()

    def new_converter(self) -> PayloadConverter:
        return self.converter

    def payload(self, value: Any) -> Payload:
        return self.converter.to_payloads([value])[0]

    def value(self, payload: Payload, kind: type | None = None) -> Any:
        """The value of a payload; kind: its model, which only encoded payloads need."""
        return self.converter.from_payloads([payload], None if kind is None else [kind])[0]

    def answer(self, value: Contract | None) -> Payload:
        """The payload of what an effect has answered."""
        return self.payload(value)


@cache
def asked_models() -> Mapping[str, type]:
    """The models of the requests of all effects by name."""
    found: dict[str, type] = {}
    for module in pkgutil.iter_modules(workflows.effects.__path__):
        values = vars(import_module(f"workflows.effects.{module.name}")).values()
        found.update({one.name: one.asked for one in values if isinstance(one, Effect)})
    return found
