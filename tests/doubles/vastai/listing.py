"""How Vast.ai shows instances: one, and the pages of a list with filters."""

from __future__ import annotations

import base64
import binascii
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.doubles.rented.boot import Address
from tests.doubles.vastai.errors import invalid
from tests.doubles.vastai.instances import Instance
from tests.doubles.vastai.market import HOURS_OF_MONTH, OPERATORS
from tests.doubles.vastai.starts import Start

PAGE = 25
PAGE_OF_NOTHING = 5
"""How many a page has whose limit is 0 or less."""
STORED = frozenset(
    {
        "id", "label", "actual_status", "intended_status", "cur_state", "next_state", "gpu_name",
        "machine_id", "verification", "start_date", "end_date", "image_uuid",
    }
)  # fmt: skip
"""The columns that are kept with the contract; the others are computed."""


def shown(instance: Instance) -> dict[str, Any]:
    """An instance as the API shows it."""
    name, count, ram = instance.shown_gpu
    disk = instance.disk_gb * instance.offer.storage_cost / HOURS_OF_MONTH
    return {
        "id": instance.id,
        "label": instance.label,
        "actual_status": instance.actual,
        "intended_status": instance.intended,
        "cur_state": instance.current,
        "next_state": instance.following,
        "status_msg": instance.message,
        "machine_id": instance.offer.id % 100_000,
        "host_id": instance.offer.id % 1000,
        "gpu_name": name,
        "num_gpus": count,
        "gpu_ram": ram,
        "gpu_totalram": ram * count,
        "gpu_frac": 1.0,
        "dph_base": instance.usd,
        "dph_total": instance.usd + disk,
        "storage_cost": instance.offer.storage_cost,
        "storage_total_cost": disk,
        "disk_space": instance.disk_gb,
        "is_bid": False,
        "verification": "verified" if instance.offer.verified else "unverified",
        "geolocation": instance.offer.geolocation,
        "image_uuid": instance.start.image,
        "image_args": [],
        "image_runtype": instance.start.runtype,
        "extra_env": _extra_env(instance.start),
        "onstart": instance.start.onstart or None,
        "start_date": instance.created_at,
        "end_date": instance.created_at + instance.offer.duration,
        "direct_port_count": instance.offer.direct_port_count,
        "reliability2": instance.offer.reliability,
        **_where(instance),
    }


def listed(instances: Iterable[Instance], query: dict[str, str]) -> dict[str, Any]:
    """The answer of `GET /api/v1/instances/`. Raises: RefusedError."""
    rows = [shown(each) for each in instances]
    filters = _read(query, "select_filters", {})
    if not isinstance(filters, dict):
        raise invalid("select_filters: no object")
    for column in filters:
        if column not in STORED:
            raise invalid(f"select_filters: column {column} cannot be filtered")
    rows = [row for row in rows if _passes(row, filters)]
    for order in reversed([*_read(query, "order_by", []), {"col": "id", "dir": "asc"}]):
        if order.get("col") not in STORED:
            raise invalid(f"order_by: column {order.get('col')} does not exist")
        rows.sort(key=lambda row: _sortable(row[order["col"]]), reverse=order.get("dir") == "desc")
    begin = _begin(query, [row["id"] for row in rows])
    size = min(int(query.get("limit", PAGE)), PAGE)
    page = rows[begin : begin + (size if size > 0 else PAGE_OF_NOTHING)]
    has_more = bool(page) and page[-1] is not rows[-1]
    columns = _read(query, "select_cols", ["*"])
    return {
        "success": True,
        "instances_found": len(page),
        "total_instances": len(rows),
        "label_counts": dict(Counter(row["label"] or "" for row in rows)),
        "next_token": _token(page[-1]["id"]) if has_more else None,
        "instances": [_columns(row, columns) for row in page],
    }


def _extra_env(start: Start) -> list[list[str]]:
    ports = [[f"-p {each}", "1"] for each in start.published]
    return [*ports, *(list(pair) for pair in start.env.items())]


def _where(instance: Instance) -> dict[str, Any]:
    """Ports come as lists of texts, and the address with white space, as with the real ones."""
    address = instance.address if instance.actual == "running" else None
    ports = None
    if address is not None and instance.has_ports and instance.start.is_direct:
        ports = _ports(instance, address) if instance.offer.direct_port_count else {}
    shift = 1 if "jupyter" in instance.start.runtype else 0
    return {
        "public_ipaddr": None if address is None else f"{address.host} \n",
        "local_ipaddrs": "172.17.0.2 \n",
        "ports": ports,
        "ssh_host": None if address is None else address.host,
        "ssh_port": None if address is None else address.port - shift,
        "ssh_idx": str(instance.id % 10),
        "machine_dir_ssh_port": None if address is None else address.port,
    }


def _ports(instance: Instance, address: Address) -> dict[str, Any]:
    """Port 22, and that of the script's own SSH server; the others of the request lead nowhere."""
    found = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(address.port)}]}
    own, port = instance.own_address, instance.start.own_port
    if own is not None:
        found[f"{port}/tcp"] = [{"HostIp": "0.0.0.0", "HostPort": str(own.port)}]
    return found


def _read(query: dict[str, str], name: str, usual: Any) -> Any:
    try:
        return json.loads(query[name]) if name in query else usual
    except ValueError as error:
        raise invalid(f"{name}: invalid json: {query[name]}") from error


def _passes(row: dict[str, Any], filters: dict[str, Any]) -> bool:
    for column, conditions in filters.items():
        for operator, value in conditions.items():
            if operator not in OPERATORS:
                raise invalid(f"select_filters: operator {operator} does not exist")
            if not OPERATORS[operator](row[column], value):
                return False
    return True


def _sortable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def _token(last_id: int) -> str:
    return base64.b64encode(json.dumps({"values": {"id": last_id}}).encode()).decode()


def _begin(query: dict[str, str], ids: list[int]) -> int:
    """Where the page begins: behind the last one of the page before."""
    token = query.get("after_token")
    if not token:
        return 0
    try:
        last = json.loads(base64.b64decode(token, validate=True))["values"]["id"]
    except (binascii.Error, ValueError, LookupError, TypeError) as error:
        raise invalid("after_token") from error
    return ids.index(last) + 1 if last in ids else sum(each <= last for each in ids)


def _columns(row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
    return row if "*" in columns else {name: row.get(name) for name in columns}
