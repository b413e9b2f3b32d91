"""Writes what is generated: the models from `api/openapi.json`, the sync half from the async one,
and the reference of job files from `docs/job.schema.json`.

python client/generate.py           write both
python client/generate.py --check   say what is out of date, and end with 1
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import unasync
from baseload.job_reference import field_references, markdown_text
from generate_operations import node_actions_text, operations_text

CLIENT = Path(__file__).parent
PACKAGE = CLIENT / "src" / "baseload"
OPENAPI = CLIENT.parent / "api" / "openapi.json"
DOCS = CLIENT.parent / "docs"
FIELDS = "<!-- fields -->"
"""Where the template of the reference has the tables of fields."""
BANNER = "# Written by client/generate.py: change {source} instead.\n"

# What has another name without async, beside what unasync itself knows.
_SYNC_NAMES = {
    "AsyncBaseTransport": "BaseTransport",
    "AsyncClient": "Client",
    "AsyncOperations": "Operations",
    "AsyncTransport": "Transport",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asyncio": "time",
    "_async": "_sync",
}
# Ruff calls UP028 unsafe because `yield from` also hands on what is sent; nobody sends to ours.
_FIXES = ("check", "--select", "I,UP028", "--fix-only", "--unsafe-fixes", "--quiet")
_SYNC_RULE = unasync.Rule("/_async/", "/_sync/", additional_replacements=_SYNC_NAMES)


def sync_text(text: str, source: str) -> str:
    """The same code without async; it needs formatting."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "_async" / "module.py"
        path.parent.mkdir()
        path.write_text(text)
        unasync.unasync_files([str(path)], [_SYNC_RULE])
        return BANNER.format(source=source) + (Path(folder) / "_sync" / "module.py").read_text()


def generated_files(openapi: Path = OPENAPI) -> dict[Path, str]:
    """Every generated file and what it should hold."""
    document = json.loads(openapi.read_text())
    operations = PACKAGE / "_async" / "operations.py"
    banner = BANNER.format(source="api/openapi.json")
    text = _formatted(banner + operations_text(document), operations)
    actions = PACKAGE / "commands" / "node_actions.py"
    files = {
        PACKAGE / "models.py": _models(document),
        operations: text,
        actions: _formatted(banner + node_actions_text(document), actions),
        **_job_reference(),
    }
    for path in sorted({operations, *(PACKAGE / "_async").glob("*.py")}):
        source = files.get(path) or path.read_text()
        half = PACKAGE / "_sync" / path.name
        files[half] = _formatted(
            sync_text(source.removeprefix(banner), f"_async/{path.name}"), half
        )
    return files


def _job_reference() -> dict[Path, str]:
    """The reference of job files, and the schema as the command reads it."""
    schema = (DOCS / "job.schema.json").read_text()
    template = (CLIENT / "job.md.template").read_text()
    tables = markdown_text(field_references(json.loads(schema)))
    banner = "<!-- Written by client/generate.py: change client/job.md.template instead. -->\n"
    return {
        PACKAGE / "job.schema.json": schema,
        DOCS / "job.md": banner + template.replace(FIELDS, tables),
    }


def _models(content: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        output, document = Path(folder) / "models.py", Path(folder) / "openapi.json"
        document.write_text(json.dumps(_without_object_defaults(content)))
        subprocess.run(
            [
                sys.executable, "-m", "datamodel_code_generator",
                "--input", str(document),
                "--input-file-type", "openapi",
                "--output", str(output),
                "--output-model-type", "pydantic_v2.BaseModel",
                "--target-python-version", "3.11",
                "--custom-file-header", BANNER.format(source="api/openapi.json").strip(),
                "--use-standard-collections",
                "--use-union-operator",
                "--use-schema-description",
                "--use-annotated",
                "--field-constraints",
                "--enum-field-as-literal", "all",
                "--extra-fields", "allow",
                "--collapse-root-models",
                "--strict-nullable",
                "--formatters", "builtin",
                "--disable-timestamp",
            ],
            check=True,
        )  # fmt: skip
        return _formatted(output.read_text(), PACKAGE / "models.py")


_BOUNDS = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")


def _without_object_defaults(schema: Any) -> Any:
    """The document, less defaults of whole objects, which would be dictionaries in the models.

    What is left out of a request is the server's default anyway.
    """
    if isinstance(schema, list):
        return [_without_object_defaults(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_object_defaults(_unbounded(value) if name == "anyOf" else value)
        for name, value in schema.items()
        if not (name == "default" and isinstance(value, dict))
    }


def _unbounded(kinds: list[Any]) -> list[Any]:
    """The kinds of a field that may be of several, less their bounds, each of which would make a
    model of its own; the API checks them."""
    given = [kind for kind in kinds if kind != {"type": "null"}]
    if len(given) < 2:
        return kinds
    return [{name: kind[name] for name in kind if name not in _BOUNDS} for kind in kinds]


def _formatted(text: str, path: Path) -> str:
    """Imports sorted and written once each (I), loops that only yield as `yield from` (UP028)."""
    for command in (_FIXES, ("format",)):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--stdin-filename",
             str(path), "-"],
            input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        text = done.stdout
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in generated_files().items()
        if not path.exists() or path.read_text() != text
    ]
    for path, text in stale:
        print(f"{'stale' if check else 'wrote'} {path.relative_to(CLIENT.parent)}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
