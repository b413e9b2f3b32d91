"""What a node says is read in one place, where everything that it may say has a bound."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from activities.site.answers import frames, reading, verbs
from activities.site.answers.bounds import Said
from tests.architecture.source import LAYERS, sources, within

READER = "activities/site/answers/"
HEARING = ("activities/site", "activities/transport")
"""Where the words of nodes pass, as bytes or as values of the reader."""
CONNECTING = "activities/site/node_client.py"
PARSERS = frozenset(
    {
        "loads",
        "load",
        "from_json",
        "literal_eval",
        "TypeAdapter",
        "model_validate",
        "model_validate_json",
        "model_validate_strings",
        "validate_json",
        "validate_python",
        "raw_decode",
    }
)
LOOKUPS = frozenset({"get", "pop", "setdefault"})


def readings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of all that parses bytes, or takes a field by its name out of a mapping."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PARSERS:
            yield node.lineno, f"parses: {ast.unparse(node)}"
        elif isinstance(node, ast.alias) and node.name.rpartition(".")[2] in PARSERS:
            yield node.lineno, f"parses: {node.name}"
        elif isinstance(node, ast.Subscript) and _is_text(node.slice):
            if ast.unparse(node.value) != "Literal":
                yield node.lineno, f"indexes: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in LOOKUPS and node.args and _is_text(node.args[0]):
                yield node.lineno, f"indexes: {ast.unparse(node)}"
        elif isinstance(node, ast.MatchMapping):
            yield node.lineno, "matches a mapping"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def test_only_the_reader_of_answers_parses_or_indexes_what_a_node_says() -> None:
    wrong = [
        f"{source.name}:{line}: {what}"
        for source in sources(*HEARING)
        if not source.name.startswith(READER)
        for line, what in readings(source.tree)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "written",
    [
        "answer = json.loads(said)",
        "from json import loads",
        "from pydantic_core import from_json",
        "hardware = Hardware.model_validate(said)",
        "frame = TypeAdapter(Frame).validate_json(line)",
        "boot_id = answer['boot_id']",
        "state = answer['runs'][name]",
        "address = served.get('address')",
        "reason = served.pop('reason', None)",
        "match answer:\n  case {'boot_id': boot_id}:\n    pass",
        "state = answer[f'run-{name}']",
    ],
)
def test_a_module_that_reads_an_answer_by_itself_is_seen(written: str) -> None:
    assert list(readings(ast.parse(written)))


CONNECTS_NOTHING = "activities.transport.node_networks"
"""It says where nodes may be, which the API asks when a notebook announces itself."""


def test_only_the_client_of_a_node_has_connections_to_it() -> None:
    wrong = [
        f"{source.name}:{line}: imports {name}"
        for source in sources(*LAYERS)
        if not source.name.startswith(("activities/transport/", CONNECTING))
        for line, name in source.imports()
        if not within(name, CONNECTS_NOTHING)
        if within(name, "activities.transport.ssh")
        or (within(name, "activities.transport") and not source.name.startswith(HEARING[0]))
    ]
    assert not wrong, "\n".join(wrong)


def models() -> list[type[Said]]:
    """The models of all that a node says."""
    found = [
        value
        for module in (verbs, frames, reading)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Said) and value is not Said
    ]
    return sorted(set(found), key=lambda model: model.__name__)


def unbounded(schema: dict[str, Any]) -> Iterator[str]:
    """The parts of a JSON schema that allow values without an end."""
    for name, part in {**schema.get("$defs", {}), "": schema}.items():
        yield from (f"{name}{path}" for path in _unbounded(part))


ENDS = {
    "string": ({"maxLength"}, {"pattern"}, {"enum"}, {"const"}, {"format"}),
    "integer": ({"minimum", "maximum"}, {"minimum", "exclusiveMaximum"}),
    "number": ({"minimum", "maximum"},),
    "array": ({"maxItems"},),
}


def _unbounded(part: dict[str, Any]) -> Iterator[str]:
    kind = part.get("type")
    if kind in ENDS and not any(ends <= part.keys() for ends in ENDS[kind]):
        yield f": {kind}"
    if kind == "object" and "additionalProperties" in part and "maxProperties" not in part:
        yield ": object"
    for each in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        yield from _unbounded(each)
    for inner in ("items", "additionalProperties"):
        if isinstance(part.get(inner), dict):
            yield from _unbounded(part[inner])
    for name, each in part.get("properties", {}).items():
        yield from (f".{name}{path}" for path in _unbounded(each))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_whatever_a_node_says_has_a_bound(model: type[Said]) -> None:
    assert list(unbounded(model.model_json_schema(mode="validation"))) == []


def test_a_value_without_a_bound_is_seen() -> None:
    class Inner(Said):
        names: tuple[str, ...]

    class Boundless(Said):
        words: str
        elapsed_s: float | None
        inner: Inner
        by_name: dict[str, int]

    assert len(list(unbounded(Boundless.model_json_schema()))) == 6
