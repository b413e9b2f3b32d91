"""Writes from the OpenAPI document a typed method for each operation, and the actions of nodes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from keyword import iskeyword
from typing import Any

HEAD = '''"""Every operation of the API that answers with JSON, one method each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from baseload import models
from baseload._async.transport import AsyncTransport
from baseload.calls import Call, segment

M = TypeVar("M", bound=BaseModel)


def _sent(body: BaseModel) -> Any:
    return body.model_dump(mode="json", exclude_unset=True)


class AsyncOperations:
    """The API as methods, named as in its OpenAPI document.

    Raises, all of them: ApiError when refused, UnreachableError when nothing answers.
    """

    transport: AsyncTransport

    async def _ask(self, model: type[M], call: Call) -> M:
        return model.model_validate_json((await self.transport.send(call)).content)
'''
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
Operation = Mapping[str, Any]


def operations_text(document: Mapping[str, Any]) -> str:
    """The module; it needs formatting."""
    methods = [
        _method(verb.upper(), path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
        if _answer(operation)
    ]
    return HEAD + "\n" + "\n".join(methods)


NODE_ACTIONS_HEAD = '''"""The actions of nodes, as the API describes them."""

from __future__ import annotations

from typing import NamedTuple


class NodeAction(NamedTuple):
    """An action of a node, `POST /v1/nodes/{id}/{name}`, and its command.

    status: of the node after the action, which `--wait` waits for; None: there is no wait.
    """

    name: str
    help: str
    takes_force: bool
    status: str | None


'''


def node_actions_text(document: Mapping[str, Any]) -> str:
    """The module of the actions of nodes; it needs formatting."""
    base = "/v1/nodes/{node_id}/"
    actions = [
        (
            path.removeprefix(base),
            verbs["post"]["description"],
            any(each["name"] == "force" for each in verbs["post"].get("parameters", ())),
            verbs["post"].get("x-resulting-status"),
        )
        for path, verbs in document["paths"].items()
        if path.startswith(base) and "post" in verbs and "requestBody" not in verbs["post"]
    ]
    lines = [f"NodeAction({', '.join(map(repr, action))})," for action in actions]
    return NODE_ACTIONS_HEAD + "NODE_ACTIONS = (\n" + "\n".join(lines) + "\n)\n"


def _method(verb: str, path: str, operation: Operation) -> str:
    answer = _answer(operation)
    parameters = [each for each in operation.get("parameters", ()) if each["in"] in _PLACES]
    query = [each for each in parameters if each["in"] == "query" and each["name"] != "follow"]
    in_path = [each for each in parameters if each["in"] == "path"]
    arguments = ["self", *(f"{each['name']}: str" for each in in_path)]
    parts = [f'"{verb}"', _path(path)]
    body = operation.get("requestBody", {}).get("content", {})
    if "application/json" in body:
        model = f"models.{_reference(body['application/json'])}"
        needed = operation["requestBody"].get("required", False)
        arguments.append(f"body: {model}" if needed else f"body: {model} | None = None")
        parts.append("body=_sent(body)" if needed else "body=body and _sent(body)")
    elif body:
        arguments.append("file: Path")
        parts.append("file=file")
    if query:
        arguments += ["*", *map(_argument, query)]
        pairs = ", ".join(f'"{each["name"]}": {_name(each)}' for each in query)
        parts.insert(2, f"query={{{pairs}}}")
    return "\n".join(
        [
            f"    async def {operation['operationId']}({', '.join(arguments)}) -> models.{answer}:",
            *_docstring(operation),
            f"        return await self._ask(models.{answer}, Call({', '.join(parts)}))\n",
        ]
    )


_PLACES = ("path", "query")


def _docstring(operation: Operation) -> Iterator[str]:
    text = operation.get("description") or operation.get("summary")
    if text:
        lines = text.strip().splitlines()
        first = lines[0] if lines[0].endswith(".") else f"{lines[0]}."
        yield textwrap.fill(f'"""{first}"""', 98, initial_indent=" " * 8, subsequent_indent=" " * 8)


def _answer(operation: Operation) -> str | None:
    """The model of the answer, if it is JSON of one."""
    for status, response in operation["responses"].items():
        if status.startswith("2") and "application/json" in response.get("content", {}):
            return _reference(response["content"]["application/json"])
    return None


def _reference(content: Mapping[str, Any]) -> str | None:
    """The name of a model; an optional body has it beside null."""
    schema = content["schema"]
    references = [each.get("$ref") for each in (schema, *schema.get("anyOf", ()))]
    reference = next(filter(None, references), None)
    return reference.rsplit("/", 1)[-1] if reference else None


def _path(path: str) -> str:
    steps = path.replace("{", "{segment(").replace("}", ")}")
    return f'f"{steps}"' if "{" in path else f'"{path}"'


def _argument(parameter: Mapping[str, Any]) -> str:
    kind = _type(parameter["schema"])
    if parameter.get("required"):
        return f"{_name(parameter)}: {kind}"
    return f"{_name(parameter)}: {kind.removesuffix(' | None')} | None = None"


def _name(parameter: Mapping[str, Any]) -> str:
    """The name of a parameter in Python: `from_` for `from`, which is a word of the language."""
    name: str = parameter["name"]
    return f"{name}_" if iskeyword(name) else name


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = [_type(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return " | ".join(dict.fromkeys(kinds)) + " | None"
    if schema.get("type") == "array":
        return f"Sequence[{_type(schema['items'])}]"
    if schema.get("format") == "date-time":
        return "datetime"
    return _TYPES.get(str(schema.get("type")), "str")
