"""RunPod's bills for pods: what the meter has counted, in hours or days."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tests.doubles.http_double import Answer
from tests.doubles.rented.clock import rfc3339
from tests.doubles.rented.door import Call, as_json
from tests.doubles.rented.meter import USD, Charge, Meter
from tests.doubles.runpod.errors import refused

BUCKET_S = {"hour": 3600, "day": 86400}
THIRTY_DAYS_S = 30 * 86400


def billed(meter: Meter, call: Call) -> Answer:
    """The answer of `GET /v2/billing/pods`."""
    query = call.asked.query
    size = query.get("bucketSize", "day")
    begin, end = _window(query, BUCKET_S[size], meter.now())
    pods = {each.machine_id for each in meter.charges}
    if "podId" in query:
        pods &= {query["podId"]}
    records = []
    for start in range(begin, end, BUCKET_S[size]):
        stop = start + BUCKET_S[size]
        for pod in sorted(pods):
            amounts = _amounts(meter, pod, start, stop)
            if amounts["totalAmount"] > 0:
                records.append({**_range(start, stop), "podId": pod, **amounts})
    echo = {**_range(begin, end), "bucketSize": size, "podId": query.get("podId")}
    totals = {
        name: sum(record[name] for record in records)
        for name in ("totalAmount", "gpuAmount", "cpuAmount", "diskAmount")
    }
    metadata = {
        "query": echo,
        "recordCount": len(records),
        "uniquePodCount": len({record["podId"] for record in records}),
        "totals": totals,
    }
    return as_json(200, {"records": records, "metadata": metadata})


def _window(query: dict[str, str], bucket: int, now: float) -> tuple[int, int]:
    """Aligned to the buckets."""
    if "lastN" in query:
        if "startTime" in query or "endTime" in query:
            raise refused(400, "lastN and startTime or endTime are mutually exclusive")
        end = _up(now, bucket)
        return end - int(query["lastN"]) * bucket, end
    end = _up(_instant(query["endTime"]) if "endTime" in query else now, bucket)
    begin = _instant(query["startTime"]) if "startTime" in query else now - THIRTY_DAYS_S
    return int(begin // bucket) * bucket, end


def _instant(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise refused(422, f"{text} is no RFC 3339 date") from error


def _up(instant: float, bucket: int) -> int:
    return int(-(-instant // bucket)) * bucket


def _range(start: int, stop: int) -> dict[str, str]:
    return {"startTime": rfc3339(start), "endTime": rfc3339(stop)}


def _amounts(meter: Meter, pod: str, start: float, stop: float) -> dict[str, Any]:
    by_what = {"gpu": 0.0, "disk": 0.0}
    for charge in meter.charges:
        if charge.machine_id == pod:
            by_what[charge.what] += _usd(charge, start, stop, meter.now())
    total = by_what["gpu"] + by_what["disk"]
    return {
        "totalAmount": total, "gpuAmount": by_what["gpu"], "cpuAmount": 0.0,
        "diskAmount": by_what["disk"],
    }  # fmt: skip


def _usd(charge: Charge, start: float, stop: float, now: float) -> float:
    ended = now if charge.ended_at is None else charge.ended_at
    seconds = max(0.0, min(ended, stop) - max(charge.began_at, start))
    return seconds * charge.price / 3600 / USD
