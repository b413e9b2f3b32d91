"""Everything that a client sends has a bound, in the document from which clients are made."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.http_server import JOB, Person, Site
from tests.api.openapi_document import DOCUMENT
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

OFFERS = "/v1/offers"
DOCUMENTS = ("JobSubmission", "DeviceConfigurationCreation", "DeviceConfigurationChange")
"""Jobs, submitted or not, and what devices run: the bounds of both are in
`workflows/rules/jobs/bounds.py`, and tested there and in `tests/rules/devices`."""


def _sent() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every parameter and every body in JSON, with its name."""
    for path, operations in DOCUMENT["paths"].items():
        for method, operation in operations.items() if path != OFFERS else ():
            for parameter in operation.get("parameters", ()):
                yield f"{method} {path} {parameter['name']}", parameter["schema"]
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                yield f"{method} {path}", content["application/json"]["schema"]


def _is_bounded_by_the_server(name: str) -> bool:
    """Texts of the address and of headers: the server reads at most 64 KiB of both together."""
    return "." not in name.rpartition(" ")[2] and name.count(" ") == 2


def _unbounded(schema: dict[str, Any], name: str) -> Iterator[str]:
    """The names of texts, lists, numbers and objects without a bound."""
    if "$ref" in schema:
        known = schema["$ref"].rpartition("/")[2]
        if known in DOCUMENTS:
            return
        schema = DOCUMENT["components"]["schemas"][known]
    for one in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        yield from _unbounded(one, name)
    if not {"enum", "const", "format"} & schema.keys():
        yield from (f"{name}: {rule}" for rule in _missing_bounds(schema))
    for below, inner in schema.get("properties", {}).items():
        yield from _unbounded(inner, f"{name}.{below}")
    if isinstance(schema.get("items"), dict):
        yield from _unbounded(schema["items"], f"{name}[]")


def _missing_bounds(schema: dict[str, Any]) -> Iterator[str]:
    kind = schema.get("type")
    if kind in ("integer", "number"):
        if not {"minimum", "exclusiveMinimum"} & schema.keys():
            yield f"{kind} has no minimum"
        if not {"maximum", "exclusiveMaximum"} & schema.keys():
            yield f"{kind} has no maximum"
    if kind == "string" and "maxLength" not in schema:
        yield "string"
    if kind == "array" and "maxItems" not in schema:
        yield "array"
    is_free = kind == "object" and schema.get("additionalProperties") is not False
    if is_free and "maxProperties" not in schema:
        yield "object"


def test_everything_that_is_sent_has_a_bound() -> None:
    found = [
        what
        for name, schema in _sent()
        for what in _unbounded(schema, name)
        if not (what.endswith(": string") and _is_bounded_by_the_server(name))
    ]
    assert "\n".join(found).splitlines() == []


async def test_a_body_with_many_mistakes_is_answered_in_short(site: Site, ada: Person) -> None:
    body = {"name": "n" * 500_000, **{f"x{number}": 0 for number in range(20_000)}}
    response = await ada.post("/v1/projects", body)
    assert response.status_code == 422
    assert len(response.content) < 100_000
    assert len(response.json()["errors"]) <= 100


NAMED = (
    ("POST", "/v1/accounts"),
    ("PATCH", "/v1/account"),
    ("PATCH", "/v1/accounts/{account_id}"),
    ("POST", "/v1/projects"),
    ("PATCH", "/v1/projects/{project_id}"),
    ("POST", "/v1/api-keys"),
    ("POST", "/v1/providers"),
    ("POST", "/v1/regions"),
    ("POST", "/v1/datastores"),
    ("POST", "/v1/reservations"),
    ("POST", "/v1/nodes"),
    ("POST", "/v1/devices"),
    ("POST", "/v1/device-configurations"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/jobs/arrays"),
    ("POST", "/v1/jobs/preview"),
    ("POST", "/v1/federated-jobs"),
    *(("POST", f"/v1/{noun.plural}") for noun in ARTIFACT_NOUNS),
)
BODIES = {f"/v1/{noun.plural}": {"source": {"type": "upload"}} for noun in ARTIFACT_NOUNS}
ESCAPES = ("\x1b[2Jgone", "a\rb", "a\tb", "a\x7fb", "a\x9b2Jb", "a\u202eb", "a\u2028b")


@pytest.mark.parametrize(("method", "path"), NAMED)
async def test_a_name_that_would_move_a_terminals_cursor_is_refused(
    admin: Person, method: str, path: str
) -> None:
    for name in ESCAPES:
        is_job = path.startswith(("/v1/jobs", "/v1/federated-jobs"))
        body = (JOB if is_job else BODIES.get(path, {})) | {"name": name}
        of_admin = path.format(account_id=admin.account_id, project_id=admin.project_id)
        refused = await admin.call(method, of_admin, json=body)
        assert refused.status_code == 422, name
        (mistake,) = (each for each in refused.json()["errors"] if each["field"] == "name")
        assert "printable characters" in mistake["rule"]
        assert mistake["value"] == name


def test_every_name_that_a_request_gives_is_in_the_table() -> None:
    named = {
        (method.upper(), path)
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
        for content in operation.get("requestBody", {}).get("content", {}).values()
        if "name" in _properties(content["schema"]) and not path.endswith("/secrets")
    }
    assert named == set(NAMED)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    named = schema.get("$ref", "").rpartition("/")[2]
    return dict(DOCUMENT["components"]["schemas"][named]["properties"]) if named else {}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/users", {"email": "a\x1b[2J@example.test"}),
        ("PATCH", "/v1/account", {"wallet_address": "a\x1b[2J"}),
        ("POST", "/v1/regions", {"provider_id": "p", "name": "r", "node_root": "/a\x1b[2J"}),
    ],
)
async def test_what_others_are_shown_has_no_control_characters(
    admin: Person, method: str, path: str, body: dict[str, str]
) -> None:
    refused = await admin.call(method, path, json=body)
    (mistake,) = refused.json()["errors"]
    assert body[mistake["field"]] == mistake["value"]
    assert "\x1b" in mistake["value"]
