"""What Vast.ai's API takes of the calls that are served here, by its documents and its own client.

Vast.ai itself passes over what it does not know; the double refuses it, because it is a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

RUNTYPES = (
    "ssh", "jupyter", "args", "ssh_proxy", "ssh_direct", "ssh_direc", "jupyter_proxy",
    "jupyter_direct", "jupyter_direc",
)  # fmt: skip
"""Several in one text, with spaces; `ssh_direc` is how Vast.ai's own client writes it."""
_ONE = "|".join(RUNTYPES)
_TEXT = {"type": "string"}
_TRUTH = {"type": "boolean"}
_MAYBE_TEXT = {"type": ["string", "null"]}
ACCEPT: dict[str, Any] = {
    "type": "object",
    "required": ["image"],
    "additionalProperties": False,
    "properties": {
        "client_id": {"const": "me"},
        "image": {"type": "string", "minLength": 1, "maxLength": 1024},
        "template_hash_id": _MAYBE_TEXT,
        "label": {"type": ["string", "null"], "maxLength": 256},
        "disk": {"type": "number"},
        "runtype": {"type": "string", "pattern": f"^({_ONE})( ({_ONE}))*$"},
        "target_state": {"enum": ["running", "stopped"]},
        "price": {"type": ["number", "null"]},
        "env": {"anyOf": [_TEXT, {"type": "object", "additionalProperties": _TEXT}]},
        "cancel_unavail": _TRUTH,
        "vm": _TRUTH,
        "onstart": _MAYBE_TEXT,
        "args": {"type": ["array", "null"], "items": _TEXT},
        "args_str": _MAYBE_TEXT,
        "use_jupyter_lab": _TRUTH,
        "jupyter_dir": _MAYBE_TEXT,
        "python_utf8": _TRUTH,
        "lang_utf8": _TRUTH,
        "force": _TRUTH,
        "user": _MAYBE_TEXT,
        "image_login": _MAYBE_TEXT,
        "volume_info": {"type": ["object", "null"]},
    },
}
MANAGE: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "state": {"enum": ["running", "stopped"]},
        "label": {"type": "string", "maxLength": 1024},
    },
}
KEY: dict[str, Any] = {
    "type": "object",
    "required": ["ssh_key"],
    "additionalProperties": False,
    "properties": {"ssh_key": {"type": "string", "pattern": r"^(ssh|ecdsa|sk)-\S+ \S+"}},
}
_FILTER = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {
        "eq": {}, "neq": {}, "gt": {"type": "number"}, "lt": {"type": "number"},
        "gte": {"type": "number"}, "lte": {"type": "number"}, "in": {"type": "array"},
        "notin": {"type": "array"},
    },
}  # fmt: skip
FIELDS = (
    "verified", "rentable", "rented", "external", "gpu_name", "num_gpus", "gpu_ram",
    "gpu_total_ram", "gpu_frac", "reliability", "reliability2", "duration", "machine_id", "host_id",
    "id", "dph_total", "dph_base", "min_bid", "storage_cost", "geolocation", "gpu_arch",
    "cuda_max_good", "compute_cap", "cpu_arch", "cpu_cores", "cpu_cores_effective", "cpu_ram",
    "datacenter", "disk_space", "direct_port_count", "static_ip", "verification", "inet_down",
    "inet_up", "inet_down_cost", "inet_up_cost", "vms_enabled",
)  # fmt: skip
"""What offers are filtered by."""
SEARCH: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "limit": {"type": "integer", "minimum": 1},
        "type": {"enum": ["on-demand", "ondemand", "bid", "reserved"]},
        "allocated_storage": {"type": "number"},
        "order": {
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [_TEXT, {"enum": ["asc", "desc"]}],
                "items": False,
                "minItems": 2,
            },
        },
        **dict.fromkeys(FIELDS, _FILTER),
    },
}
SEARCH_NEW: dict[str, Any] = {
    "type": "object",
    "required": ["q"],
    "additionalProperties": False,
    "properties": {"select_cols": {"const": ["*"]}, "q": SEARCH},
}
BODIES = {
    "asks.accept": ACCEPT,
    "asks.search": SEARCH,
    "asks.search_new": SEARCH_NEW,
    "instances.manage": MANAGE,
    "instances.attach": KEY,
    "keys.create": KEY,
}
QUERIES = {
    "instances.get": {"owner"},
    "instances.list": {"limit", "after_token", "select_filters", "order_by", "select_cols"},
}


def wrong_in_body(name: str, body: Any) -> Iterator[str]:
    """What is wrong with the body of a call; one that takes none may be asked with `{}`."""
    schema = BODIES.get(name)
    if schema is None:
        if body not in (None, {}):
            yield "body: not allowed"
        return
    for error in Draft202012Validator(schema).iter_errors(body):
        yield f"{error.json_path}: {error.message}"


def wrong_in_query(name: str, query: dict[str, str]) -> Iterator[str]:
    """What is wrong with the query of a call."""
    for each in sorted(set(query) - QUERIES.get(name, set()) - {"api_key"}):
        yield f"query.{each}: not allowed"
