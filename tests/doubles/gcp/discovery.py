"""Google's own descriptions of its HTTP APIs, as routes and as strict JSON Schemas.

The documents ship in google-api-python-client. A request is matched against their methods, its
parameters and its body are held against their schemas, and so is each answer of the double: an
unknown field or parameter is an error here, where the real API would often let it pass unseen.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jsonschema import Draft202012Validator

from tests.doubles.gcp import quota_document
from tests.doubles.gcp.errors import RefusedError

Json = dict[str, Any]

DOCUMENTS = (
    "compute.v1",
    "cloudresourcemanager.v3",
    "serviceusage.v1",
    "cloudbilling.v1",
    "iam.v1",
    "logging.v2",
    "cloudquotas.v1",
)
CHECKED_ENTRIES = 60
"""So many entries of the lists of one answer are held against the schema: one function made all."""
INT64 = r"^-?\d+$"
SYSTEM_PARAMETERS = frozenset({"$alt", "$prettyPrint", "$fields"})
"""Taken by every Google API although the documents name them otherwise or not at all."""


@dataclass(frozen=True)
class Method:
    """One method of one API: how it is called, what it takes and what it answers."""

    id: str
    verb: str
    route: re.Pattern[str]
    parameters: Mapping[str, Json]
    common: frozenset[str]
    request: str | None
    response: str | None
    document: str

    @classmethod
    def named(cls, method: str) -> Method:
        """A method of which nothing but its id matters."""
        return cls(method, "", re.compile(""), {}, frozenset(), None, None, "")

    def check_parameters(self, parameters: Mapping[str, list[str]]) -> Iterator[str]:
        """What is wrong with these parameters of path and query, one line each."""
        for name, values in parameters.items():
            described = self.parameters.get(name)
            if described is None:
                if name not in self.common and name not in SYSTEM_PARAMETERS:
                    yield f"unknown parameter {name!r}"
                continue
            if len(values) > 1 and not described.get("repeated"):
                yield f"parameter {name!r}: given {len(values)} times"
            for value in values:
                yield from _check_parameter(name, value, described)
        for name, described in self.parameters.items():
            if described.get("required") and name not in parameters:
                yield f"required parameter {name!r} is missing"

    def check_request(self, body: Any) -> Iterator[str]:
        if self.request is None:
            if body is not None:
                yield "a body, where none is taken"
            return
        yield from check(self.document, self.request, {} if body is None else body)

    def check_response(self, body: Any) -> Iterator[str]:
        if self.response is not None:
            yield from check(self.document, self.response, shortened(body))


@dataclass(frozen=True)
class Surface:
    """Every method that the double's APIs have."""

    by_verb: Mapping[str, tuple[Method, ...]]
    ids: frozenset[str] = field(default_factory=frozenset)

    def match(self, verb: str, path: str) -> tuple[Method, dict[str, list[str]]] | None:
        """The method at a path, and the path's parameters; None: Google has none there."""
        for method in self.by_verb.get(verb, ()):
            if found := method.route.fullmatch(path):
                return method, {name: [unquote(value)] for name, value in found.groupdict().items()}
        return None


def surface(served: Iterable[str]) -> Surface:
    """The methods with these ids, which must exist in the documents."""
    wanted = frozenset(served)
    by_verb: dict[str, list[Method]] = {}
    found: set[str] = set()
    for name in DOCUMENTS:
        document = load(name)
        for described in _methods(document):
            if described["id"] in wanted:
                found.add(described["id"])
                method = _method(name, document, described)
                by_verb.setdefault(method.verb, []).append(method)
    if wanted - found:
        raise LookupError(f"not in Google's documents: {', '.join(sorted(wanted - found))}")
    return Surface({verb: tuple(methods) for verb, methods in by_verb.items()}, frozenset(found))


@lru_cache
def load(name: str) -> Json:
    """One document, by API and version, such as `compute.v1`."""
    if name == "cloudquotas.v1":
        return quota_document.DOCUMENT
    spec = find_spec("googleapiclient")
    if spec is None or spec.origin is None:
        raise LookupError("google-api-python-client is not installed: uv sync --dev")
    folder = Path(spec.origin).parent / "discovery_cache" / "documents"
    read: Json = json.loads((folder / f"{name}.json").read_text())
    return read


def check(document: str, schema: str, body: Any) -> Iterator[str]:
    """Where a body departs from a schema of a document, one line each."""
    for error in _validator(document, schema).iter_errors(body):
        yield f"{schema}{error.json_path.removeprefix('$')}: {error.message[:300]}"


def shortened(body: Any, most: int = CHECKED_ENTRIES) -> Any:
    """The body with the first entries of its lists, so many in all."""
    left = itertools.count(most, -1)

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: cut(each) for name, each in value.items()}
        if isinstance(value, list):
            return [cut(each) for each in value if next(left) > 0]
        return value

    return cut(body)


def json_schema(described: Json) -> Json:
    """A schema of a discovery document as JSON Schema; objects take no field they do not name."""
    if "$ref" in described:
        return {"$ref": f"#/$defs/{described['$ref']}"}
    kind = described.get("type", "any")
    if kind == "any":
        return {}
    if kind == "array":
        return {"type": "array", "items": json_schema(described["items"])}
    if kind == "object":
        return _object(described)
    made: Json = {"type": kind}
    if described.get("format") in ("int64", "uint64"):
        made["pattern"] = INT64
    elif "pattern" in described:
        made["pattern"] = described["pattern"]
    if "enum" in described:
        made["enum"] = described["enum"]
    return made


def _object(described: Json) -> Json:
    made: Json = {"type": "object"}
    if "properties" in described:
        properties = described["properties"].items()
        made["properties"] = {name: json_schema(value) for name, value in properties}
        made["additionalProperties"] = False
    elif "additionalProperties" in described:
        made["additionalProperties"] = json_schema(described["additionalProperties"])
    return made


@lru_cache
def _validator(document: str, schema: str) -> Draft202012Validator:
    schemas = load(document)["schemas"]
    definitions: Json = {}
    left = [schema]
    while left:
        name = left.pop()
        if name not in definitions:
            definitions[name] = json_schema(schemas[name])
            left += _references(schemas[name])
    return Draft202012Validator({"$ref": f"#/$defs/{schema}", "$defs": definitions})


def _references(described: Any) -> Iterator[str]:
    if isinstance(described, dict):
        if isinstance(described.get("$ref"), str):
            yield described["$ref"]
        for value in described.values():
            yield from _references(value)


def _methods(resource: Json) -> Iterator[Json]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def _method(name: str, document: Json, described: Json) -> Method:
    parameters = described.get("parameters", {})
    return Method(
        id=described["id"],
        verb=described["httpMethod"],
        route=_route(f"/{document['servicePath']}{described['path']}", parameters),
        parameters=parameters,
        common=frozenset(document["parameters"]),
        request=described.get("request", {}).get("$ref"),
        response=described.get("response", {}).get("$ref"),
        document=name,
    )


def _route(path: str, parameters: Mapping[str, Json]) -> re.Pattern[str]:
    """`{x}` is one step of the path, `{+x}` as many as the parameter's own pattern has."""
    made = ""
    for part in re.split(r"(\{\+?\w+\})", path):
        if not part.startswith("{"):
            made += re.escape(part)
            continue
        name = part.strip("{+}")
        inner = "[^/]+"
        if part.startswith("{+"):
            inner = parameters[name]["pattern"].removeprefix("^").removesuffix("$")
            inner = inner.replace("[^/]+", "[^/:]+")
        made += f"(?P<{name}>{inner})"
    return re.compile(made)


def _check_parameter(name: str, value: str, described: Json) -> Iterator[str]:
    kind = described.get("type")
    pattern = described.get("pattern")
    if pattern and not re.fullmatch(pattern, value):
        yield f"parameter {name!r}: {value!r} does not match {pattern}"
    if kind == "integer" and not re.fullmatch(r"-?\d+", value):
        yield f"parameter {name!r}: {value!r} is not a whole number"
    if kind == "boolean" and value.lower() not in ("true", "false"):
        yield f"parameter {name!r}: {value!r} is neither true nor false"
    if "enum" in described and value not in described["enum"]:
        yield f"parameter {name!r}: {value!r} is none of {', '.join(described['enum'])}"


def refuse(problems: Iterable[str]) -> None:
    """Raises: RefusedError (400) when there are any."""
    lines = list(problems)
    if lines:
        raise RefusedError.invalid("; ".join(lines))
