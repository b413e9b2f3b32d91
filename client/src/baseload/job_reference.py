"""The reference of the fields of a job file, read from their JSON Schema.

`baseload help job` prints it, and `client/generate.py` writes the table of `docs/job.md` from it.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

SCHEMA = Path(__file__).with_name("job.schema.json")
"""A copy of `docs/job.schema.json`."""
_WIDTH = 88
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "map",
    "null": "null",
}


@dataclass(frozen=True)
class FieldReference:
    """One field. `name` is its dotted path, such as `resources.gpus` or `workers[].command`."""

    name: str
    kind: str
    """The type of its value in words."""
    default: str
    """The value if the field is left out, as YAML; `none`, or `(needed)`."""
    example: str
    """One line of YAML."""
    meaning: str


def field_references(schema: dict[str, Any] | None = None) -> list[FieldReference]:
    """Every field of a job file, each part before its own fields."""
    schema = schema or json.loads(SCHEMA.read_text())
    return list(_fields(schema, schema, ""))


def reference_text(name: str = "") -> str | None:
    """What `baseload help job [NAME]` prints: all fields, or one with those below; None: no such.

    name: a dotted path; `workers.command` and `workers.0.command` mean `workers[].command`.
    """
    fields = field_references()
    wanted = _plain(name)
    shown = [each for each in fields if _is_at(_plain(each.name), wanted)]
    if not shown:
        return None
    return "\n\n".join(_described(each) for each in shown)


def nearest_field(name: str) -> str | None:
    """The field whose name is most like this one; None: none is like it."""
    fields = {_plain(each.name): each.name for each in field_references()}
    last = {known.rpartition(".")[2]: full for known, full in fields.items()}
    for known in (fields, last):
        if near := get_close_matches(_plain(name), known, n=1):
            return known[near[0]]
    return None


def markdown_text(fields: list[FieldReference]) -> str:
    """The fields as tables of Markdown, one for each part."""
    parts = dict.fromkeys(each.name.rpartition(".")[0] for each in fields)
    tables = []
    for part in parts:
        rows = [each for each in fields if each.name.rpartition(".")[0] == part]
        tables += [f"### `{part}`" if part else "### At the top", ""]
        tables += ["| field | value | default | meaning |", "|---|---|---|---|"]
        tables += [
            f"| `{each.name}` | {each.kind} | {_code(each.default)} | "
            f"{each.meaning} Example: `{each.example}` |"
            for each in rows
        ]
        tables.append("")
    return "\n".join(tables).rstrip()


def _is_at(name: str, wanted: str) -> bool:
    return not wanted or name == wanted or name.startswith(f"{wanted}.")


def _plain(name: str) -> str:
    return re.sub(r"\.\d+(?=\.|$)", "", name.replace("[]", ""))


def _described(field: FieldReference) -> str:
    lines = textwrap.wrap(field.meaning, _WIDTH, initial_indent="  ", subsequent_indent="  ")
    head = f"{field.name}: {field.kind}; default: {field.default}"
    return "\n".join([head, *lines, f"  Example: {field.example}"])


def _code(default: str) -> str:
    return default if default in ("none", "(needed)") else f"`{default}`"


def _fields(schema: dict[str, Any], part: dict[str, Any], prefix: str) -> Iterator[FieldReference]:
    """The fields of a part of a schema; prefix: its own dotted path with a dot at its end."""
    needed = part.get("required", ())
    for name, field in part["properties"].items():
        kinds = list(_alternatives(schema, field))
        (example,) = field["examples"][:1] or ("",)
        yield FieldReference(
            name=prefix + name,
            kind=" or ".join(dict.fromkeys(_kind(schema, each) for each in kinds)),
            default="(needed)" if name in needed else _default(field),
            example=f"{name}: {json.dumps(example, ensure_ascii=False)}",
            meaning=field.get("description") or kinds[0]["description"],
        )
        for each in kinds:
            items = each.get("items")
            below = next(_alternatives(schema, items)) if items else each
            if "properties" in below:
                step = "[]." if items else "."
                yield from _fields(schema, below, f"{prefix}{name}{step}")


def _alternatives(schema: dict[str, Any], field: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schemas of which a value has one, less null: to leave the field out says the same."""
    for each in field.get("anyOf", [field]):
        if "$ref" in each:
            yield schema["$defs"][each["$ref"].rpartition("/")[2]]
        elif each.get("type") != "null":
            yield each


def _kind(schema: dict[str, Any], field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_plural(_kind(schema, next(_alternatives(schema, field['items']))))}"
    values = field.get("additionalProperties")
    if isinstance(values, dict):
        return "map of names to texts"
    return _KINDS[field["type"]]


def _plural(kind: str) -> str:
    if kind in ("text", "map", "number", "whole number"):
        return f"{kind}s"
    return kind.replace("map of", "maps of")


def _default(field: dict[str, Any]) -> str:
    default = field.get("default")
    if default is None or default in ([], {}):
        return "none"
    return json.dumps(default, ensure_ascii=False)
