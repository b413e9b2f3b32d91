"""The requests that the OpenAPI document allows, and the places in them that name something.

A place is a path or query parameter, or a field of a body, that may hold text. Each place is known
here, as the name of some kind of thing or as plain text, so that a new one fails until it is.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.api.openapi_document import DOCUMENT
from tests.api.test_access import Route

NAMED = {
    "path account_id": "account",
    "path key_id": "key",
    "path project_id": "project",
    "path user_id": "user",
    "path invitation_id": "invitation",
    "path provider_id": "provider",
    "path region_id": "region",
    "path node_id": "node",
    "path lease_id": "lease",
    "path upload_id": "upload",
    "path job_id": "job",
    "path datastore_id": "datastore",
    "path reservation_id": "reservation",
    "path device_id": "device",
    "path transaction_id": "transaction",
    "query device_id": "device",
    "path configuration_id": "device configuration",
    "path deployment_id": "device-deployment",
    "path federated_id": "federated-job",
    "query model_id": "model",
    "query consumer_account_id": "account",
    "query configuration_id": "device configuration",
    "query node_id": "node",
    "body configuration_id": "device configuration",
    "body device_ids[]": "device",
    "body model.id": "model",
    "body checkpoints[]": "checkpoint",
    "body output.datastore_id": "datastore",
    "path boot_drive_request_id": "boot-drive-request",
    "path key_type": "key type",
    "query provider_id": "provider",
    "query providers": "provider",
    "query region_id": "region",
    "query project_id": "project",
    "query job_id": "job",
    "query resource_id": "job",
    "body billing_account_id": "account",
    "body user_id": "user",
    "body provider_id": "provider",
    "body region_id": "region",
    "body minion_id": "minion",
    "body token": "token",
    "body credentials": "credentials",
    "body project_id": "project",
    "body code.upload_id": "upload",
    "body source.job_id": "job",
    "body source.artifact_id": "dataset",
    "body source.secret": "secret",
    "body data.input.upload_id": "upload",
    "body data.input.datastore_id": "datastore",
    "body data.input.id": "dataset",
    "body data.input.job_id": "job",
    "body data.input.secret": "secret",
    "body data.output.secret": "secret",
    "body data.output.datastore_id": "datastore",
    "body data.scratch.datastore_id": "datastore",
    "body reservation_id": "reservation",
    "body source.datastore_id": "datastore",
    "body placement.region_id": "region",
    "body placement.providers[]": "provider",
    "body environment.secrets{}": "secret reference",
}
"""The kind of thing that each place names."""
NAMED_ON = {
    "remove_project_secret": {"path name": "secret"},
    "accept_invitation": {"body token": "invitation token"},
    **{f"{verb}_member": {"path user_id": "member"} for verb in ("change", "remove")},
    "end_provider_machine": {"path provider_id": "cloud", "path name": "machine"},
    "change_provider": {"path provider_id": "cloud"},
    "list_quotas": {"query provider_id": "cloud"},
    "create_federated_job": {"body data.model.id": "model"},
    "list_provider_machines": {"path provider_id": "cloud"},
}
"""The kinds that differ on one route, by its operation."""
PLAIN = frozenset(
    {
        *("query status", "query after", "query cloud_region", "query gpus", "query zone"),
        *("query label", "body labels{}"),
        *("body guest_policy.accounts[]", "body guest_policy.projects[]"),  # Others, of any name.
        *("query begins_at", "query ends_at", "query since", "query max_price"),
        *("body name", "body owner_email", "body email", "body wallet_address", "body value"),
        "body federated_egress[]",
        *("body scopes[]", "body node_root", "body cloud_region", "body storage_node_class"),
        *("body relaxed_requirements[]", "body gpus", "body address", "body user"),
        *("body host_public_key", "body credentials{}"),
        *("body environment.variables{}", "body workers[].command", "body resources.gpus"),
        *("body resources.gpu_types[]", "body environment.image", "body environment.requirements"),
        *("body environment.python_packages[]", "body environment.apt_packages[]"),
        *("path index", "path revision", "query sha256", "body source.type", "body source.url"),
        *("body source.sha256", "body source.revision", "body source.bucket"),
        *("body source.prefix", "body source.region", "body source.repo"),
        *("body root_path", "body password", "body data.input.path", "body data.output.path"),
        "body hostname",
        *("body wallets{}", "body idle_workload.image", "body idle_workload.command"),
        "body idle_workload.environment{}",
        *("body hostname", "body ship_to[]", "body reason", "body carrier", "body tracking"),
        *("body environment.credentials[]", "body environment.image_credentials"),
        *("body source.account", "body source.container", "body source.dataset"),
        *("body environment.setup[]", "body data.input.type", "body data.output.type"),
        *("body data.input.url", "body data.input.sha256", "body data.input.revision"),
        *("body data.input.bucket", "body data.input.prefix", "body data.input.region"),
        *("body data.input.account", "body data.input.container", "body data.input.repo"),
        *("body data.input.kind", "body data.input.dataset"),
        *("body data.output.url", "body data.output.branch", "body data.output.bucket"),
        *("body data.output.prefix", "body data.output.region", "body data.output.account"),
        *("body data.output.container", "body data.output.repo", "body data.output.kind"),
        *("body data.output.dataset", "body data.output.name"),
        *("query inference_status", "query state", "body command", "body output.type"),
        *("body output.path", "body health.http_path", "body health.log_line"),
        *("body data.scratch.type", "body data.scratch.path", "body source.path"),
        *("body reference", "query kind", "query overrides"),
        *("path kind", "path field", "body value{}"),  # Each account has its own at one name.
    }
)
"""Places whose text names nothing that an account owns."""
UNAVAILABLE = frozenset(
    {
        *("body data.datasets[]", "body data.model.id", "body data.model.project_id"),
        *("body data.checkpoints[]", "body data.volumes[].id", "body data.output.upload_id"),
        *("body data.scratch.upload_id", "body output.upload_id", "body model.project_id"),
    }
)
"""Places of what is not available yet, which are refused to everybody."""


class Place(NamedTuple):
    """A place of a request: `path job_id`, `query zone`, `body code.upload_id`."""

    where: str
    field: str

    def __str__(self) -> str:
        return f"{self.where} {self.field}"


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][route.path][route.method.lower()]
    return found


def places(route: Route) -> Iterator[Place]:
    """Every place of a route's requests that may hold text."""
    asked = operation(route)
    for each in asked.get("parameters", ()):
        if each["in"] == "path" or (each["in"] == "query" and _may_be_text(each["schema"])):
            yield Place(each["in"], each["name"])
    schema = asked.get("requestBody", {}).get("content", {}).get("application/json", {})
    if schema:
        yield from (Place("body", field) for field in dict.fromkeys(_fields(schema["schema"], "")))


def kind_of(route: Route, place: Place) -> str | None:
    """The kind of thing that a place names; None: it names nothing that an account owns.

    Raises: LookupError, when nobody has said what the place holds.
    """
    own = NAMED_ON.get(route.name, {}).get(str(place)) or NAMED.get(str(place))
    if place in (Place("path", "resource_id"), Place("path", "artifact_id")):
        return route.path.split("/")[2].removesuffix("s")
    if own is None and str(place) not in PLAIN | UNAVAILABLE:
        raise LookupError(f"{route.name}: nobody has said what {place} holds")
    return own


def named_places(route: Route) -> dict[Place, str]:
    """The places of a route that name something of an account, with its kind."""
    found = {place: kind_of(route, place) for place in places(route)}
    return {place: kind for place, kind in found.items() if kind is not None}


_SOURCES = {
    "job_id": {"type": "job"},
    "artifact_id": {"type": "artifact"},
    "secret": {"type": "aws", "bucket": "pets"},
    "datastore_id": {"type": "regional"},
}
_PARTS = {
    "data.input.id": {"type": "dataset"},
    "data.input.job_id": {"type": "job"},
    "data.input.secret": {"type": "aws", "bucket": "pets"},
    "data.output.secret": {"type": "web", "url": "https://example.com/in"},
}


_BESIDE = {
    **{key: {"type": "regional"} for key in ("output.datastore_id", "output.upload_id")},
    "model.project_id": {"id": "mod-1"},
}
"""What the part of a body needs beside the field."""


def put(body: dict[str, Any], field: str, value: str) -> dict[str, Any]:
    """A body with one field more: `placement.providers[]` is the only one of a list."""
    name, _, rest = field.partition(".")
    if (given := _PARTS.get(field)) is not None:  # As of a source.
        part, _, last = rest.partition(".")
        return body | {name: {part: {**given, last: value}}}
    if name == "source":  # It has no other fields beside the one that names its kind of thing.
        return body | {name: {**_SOURCES[rest], rest: value}}
    if rest:
        return body | {name: put(_BESIDE.get(field) or body.get(name, {}), rest, value)}
    if name.endswith("[]"):
        return body | {name[:-2]: [value]}
    if name.endswith("{}"):
        return body | {name[:-2]: {"TOKEN": value}}
    return body | {name: value}


def filled(path: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], path)


def _fields(schema: dict[str, Any], field: str) -> Iterator[str]:
    """The fields of a body that may hold text."""
    schema = _whole(schema)
    for key in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(key, ()):
            yield from _fields(each, field)
    for name, each in schema.get("properties", {}).items():
        yield from _fields(each, f"{field}.{name}" if field else name)
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], f"{field}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _fields(schema["additionalProperties"], f"{field}{{}}")
    if _is_text(schema):
        yield field


def _may_be_text(schema: dict[str, Any]) -> bool:
    return bool(list(_fields(schema, "query")))


def _is_text(schema: dict[str, Any]) -> bool:
    """Whether a schema takes text that no list of values or format bounds; {} takes anything."""
    bounded = {"enum", "const", "$ref", "anyOf", "oneOf", "allOf"} & schema.keys()
    is_instant = schema.get("format") == "date-time"
    return schema.get("type", "string") == "string" and not bounded and not is_instant


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: dict[str, Any] = DOCUMENT["components"]["schemas"][schema["$ref"].split("/")[-1]]
    return found
