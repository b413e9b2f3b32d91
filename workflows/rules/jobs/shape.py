"""The shape of a document: what is wrong with it, in words that say what is permitted there."""

import typing
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

_WORDS = {
    "missing": "is needed",
    "string_type": "is a text; put it in quotes",
    "int_type": "is a whole number",
    "int_parsing": "is a whole number",
    "int_from_float": "is a whole number",
    "float_type": "is a number",
    "float_parsing": "is a number",
    "bool_type": "is true or false",
    "bool_parsing": "is true or false",
    "tuple_type": "is a list, such as [a, b]",
    "dict_type": "is a map of names to values",
}
"""By the library's type of an error; any other is said in the library's words."""
_NO_MAP = ("model_type", "model_attributes_type")


def rule_of(model: type[BaseModel], details: Any) -> str:
    """The rule that a value of a document breaks.

    model: of the whole document. details: what the library has found, one of `error.errors()`.
    """
    kind, path = details["type"], details["loc"]
    if kind == "extra_forbidden":
        fields = _fields(model, path[:-1])
        return f"is no field here: these are {', '.join(fields)}{_hint(path[-1], fields)}"
    if kind in _NO_MAP:
        return f"is a map with the fields {', '.join(_fields(model, path))}"
    if kind == "enum":
        values = [each.strip(" '") for each in _expected(details)]
        return f"is one of {', '.join(values)}{_hint(details['input'], values)}"
    if kind == "value_error":
        return str(details["ctx"]["error"])
    message = details["msg"]
    return _WORDS.get(kind) or message[:1].lower() + message[1:]


def _expected(details: Any) -> list[str]:
    return str(details.get("ctx", {}).get("expected", "")).replace(" or ", ", ").split(",")


def _hint(given: Any, known: list[str]) -> str:
    near = get_close_matches(str(given), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _fields(model: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The names of the fields at a path of the document."""
    for step in path:
        if isinstance(step, str) and step in model.model_fields:
            model = _model_in(model.model_fields[step].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model of a field, also of one that may be left out or of the items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_model_in(each) for each in typing.get_args(annotation))
    return next((each for each in found if each is not None), None)
