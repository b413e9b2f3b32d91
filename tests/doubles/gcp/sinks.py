"""Log sinks, and the entries that they carry to topics on which their writers may publish."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import rfc3339
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.filters import Contains, parse
from tests.doubles.gcp.lists import page
from tests.doubles.gcp.pubsub import Message

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

serves = Register()
SHARED_WRITER = "serviceAccount:cloud-logs@system.gserviceaccount.com"
PUBLISHER = "roles/pubsub.publisher"
TO_TOPIC = re.compile(r"pubsub\.googleapis\.com/(projects/[^/]+/topics/[^/]+)")
_CHANGEABLE = ("destination", "filter", "includeChildren", "description", "disabled")


@serves("logging.projects.sinks.create")
def create_sink(call: Call) -> Json:
    name = call.body.get("name", "")
    if not re.fullmatch(r"[\w.-]{1,100}", name):
        raise RefusedError.invalid(f"Sink name {name!r} is not valid")
    path = f"projects/{call.project.id}/sinks/{name}"
    if path in call.cloud.sinks:
        raise RefusedError(409, "alreadyExists", f"Sink {name} already exists")
    _check(call.body)
    now = rfc3339(call.cloud.clock.now())
    sink = {
        "name": name,
        **{field: call.body[field] for field in _CHANGEABLE if field in call.body},
        "createTime": now,
        "updateTime": now,
        "writerIdentity": _writer(call),
    }
    call.cloud.sinks[path] = sink
    return sink


@serves("logging.projects.sinks.get")
def get_sink(call: Call) -> Json:
    return _found(call)


@serves("logging.projects.sinks.list")
def list_sinks(call: Call) -> Json:
    start = f"projects/{call.project.id}/sinks/"
    found = [sink for path, sink in call.cloud.sinks.items() if path.startswith(start)]
    return page(call, "sinks", found, "pageSize")


@serves("logging.projects.sinks.update", "logging.projects.sinks.patch")
def update_sink(call: Call) -> Json:
    """Without a mask the destination, the filter and includeChildren are what is replaced."""
    sink = _found(call)
    mask = call.get("updateMask", "destination,filter,includeChildren").split(",")
    unknown = [field for field in mask if field not in _CHANGEABLE]
    if unknown:
        raise RefusedError.invalid(f"Invalid update_mask: {', '.join(unknown)}")
    changed = {field: call.body[field] for field in mask if field in call.body}
    _check({**sink, **changed})
    for field in mask:
        sink.pop(field, None)
    sink.update(changed, updateTime=rfc3339(call.cloud.clock.now()))
    if call.flag("uniqueWriterIdentity"):
        sink["writerIdentity"] = _writer(call)
    return sink


@serves("logging.projects.sinks.delete")
def delete_sink(call: Call) -> Json:
    _found(call)
    del call.cloud.sinks[f"projects/{call.project.id}/sinks/{_name(call)}"]
    return {}


def _name(call: Call) -> str:
    return call["sinkName"].rsplit("/", 1)[1]


def _found(call: Call) -> Json:
    sink = call.cloud.sinks.get(f"projects/{call.project.id}/sinks/{_name(call)}")
    if sink is None:
        raise RefusedError(404, "notFound", f"Sink {_name(call)} does not exist")
    return sink


def _writer(call: Call) -> str:
    unique = call.flag("uniqueWriterIdentity")
    return f"serviceAccount:{call.project.logging_agent}" if unique else SHARED_WRITER


def _check(sink: Json) -> None:
    destination = sink.get("destination", "")
    if not TO_TOPIC.fullmatch(destination):
        raise RefusedError.invalid(f"Unsupported sink destination: {destination}")
    if sink.get("filter"):
        parse(sink["filter"], Contains())


def route(cloud: Cloud, project_id: str, entry: Json) -> None:
    """Carry a log entry through every sink whose filter takes it and whose writer may publish.

    What could not be delivered is kept in `cloud.undelivered`, with the reason.
    """
    start = f"projects/{project_id}/sinks/"
    for path, sink in cloud.sinks.items():
        if not path.startswith(start) or sink.get("disabled"):
            continue
        if sink.get("filter") and not parse(sink["filter"], Contains())(entry):
            continue
        _deliver(cloud, sink, entry)


def _deliver(cloud: Cloud, sink: Json, entry: Json) -> None:
    found = TO_TOPIC.fullmatch(sink["destination"])
    topic = cloud.pubsub.topics.get(found[1]) if found else None
    if topic is None:
        cloud.undelivered.append((sink["name"], f"no topic {sink['destination']}", entry))
        return
    if sink["writerIdentity"] not in topic.policy.get(PUBLISHER, ()):
        reason = f"{sink['writerIdentity']} is no {PUBLISHER} of {topic.name}"
        cloud.undelivered.append((sink["name"], reason, entry))
        return
    attributes = {"logging.googleapis.com/timestamp": entry["timestamp"]}
    cloud.pubsub.publish(topic.name, Message(json.dumps(entry).encode(), attributes))
