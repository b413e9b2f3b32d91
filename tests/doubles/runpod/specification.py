"""What RunPod's REST v2 takes, as its OpenAPI document has it of the calls that are served here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

_TEXTS = {"type": "array", "items": {"type": "string"}}
_CUDA = {"type": "string", "pattern": r"^\d+\.\d+$"}
_CLOUD = {"enum": ["SECURE", "COMMUNITY"]}
_GPU = {
    "type": "object",
    "required": ["id"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "allowedCudaVersions": {"type": "array", "items": _CUDA},
        "minCudaVersion": _CUDA,
    },
}
_PERSISTENT = {
    "type": "object",
    "required": ["size", "path"],
    "additionalProperties": False,
    "properties": {"size": {"type": "integer", "minimum": 10}, "path": {"type": "string"}},
}
_NETWORK = {
    "type": "object",
    "required": ["volumeId", "path"],
    "additionalProperties": False,
    "properties": {"volumeId": {"type": "string"}, "path": {"type": "string"}},
}
CREATE_POD: dict[str, Any] = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "if": {"not": {"required": ["templateId"]}},
    "then": {"required": ["image"]},
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "image": {"type": "string"},
        "args": {"type": "string"},
        "disk": {"type": "integer", "minimum": 1},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
        "ports": _TEXTS,
        "registry": {"type": ["string", "null"]},
        "cloud": _CLOUD,
        "gpu": _GPU,
        "cpu": {"type": "object"},
        "dataCenterIds": _TEXTS,
        "globalNetworking": {"type": "boolean"},
        "mounts": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "persistent": _PERSISTENT,
                "network": {"type": "array", "maxItems": 1, "items": _NETWORK},
            },
        },
        "startJupyter": {"type": "boolean"},
        "startSsh": {"type": "boolean"},
        "templateId": {"type": "string", "minLength": 1},
    },
}
ACT: dict[str, Any] = {
    "type": "object",
    "required": ["action"],
    "additionalProperties": False,
    "properties": {"action": {"enum": ["start", "stop", "restart", "terminate"]}},
}
PUT_KEYS: dict[str, Any] = {
    "type": "object",
    "required": ["keys"],
    "additionalProperties": False,
    "properties": {
        "keys": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": r"^(ssh|ecdsa|sk)-[^\s]+ [^\s]+([ \t][^\n\r]*)?$",
            },
        }
    },
}
BODIES = {"pods.create": CREATE_POD, "pods.act": ACT, "keys.replace": PUT_KEYS}
QUERIES: dict[str, dict[str, dict[str, Any]]] = {
    "pods.list": {"includeClusterPods": {"enum": ["true", "false"]}},
    "gpus.list": {
        "include": {"enum": ["AVAILABILITY"]},
        "product": {"pattern": "^(POD|CLUSTER|SERVERLESS)(,(POD|CLUSTER|SERVERLESS))*$"},
        "count": {"pattern": "^[1-9][0-9]*$"},
        "cloud": _CLOUD,
    },
    "billing.pods": {
        "startTime": {"pattern": r"^\d{4}-\d\d-\d\dT.+(Z|[+-]\d\d:\d\d)$"},
        "endTime": {"pattern": r"^\d{4}-\d\d-\d\dT.+(Z|[+-]\d\d:\d\d)$"},
        "bucketSize": {"enum": ["hour", "day"]},
        "lastN": {"pattern": "^[1-9][0-9]*$"},
        "podId": {"minLength": 1},
    },
}
"""Not served: weeks, months and years of bills, countries and CUDA versions of the catalogue."""


def wrong_in_body(name: str, body: Any) -> Iterator[str]:
    """What is wrong with the body of a call; a call that takes none is asked without."""
    schema = BODIES.get(name)
    if schema is None:
        if body is not None:
            yield "body: not allowed"
        return
    for error in Draft202012Validator(schema).iter_errors(body):
        yield f"{error.json_path}: {error.message}"


def wrong_in_query(name: str, query: dict[str, str]) -> Iterator[str]:
    """What is wrong with the query of a call."""
    schema = {
        "type": "object", "properties": QUERIES.get(name, {}), "additionalProperties": False,
    }  # fmt: skip
    for error in Draft202012Validator(schema).iter_errors(query):
        yield f"query{error.json_path.removeprefix('$')}: {error.message}"
