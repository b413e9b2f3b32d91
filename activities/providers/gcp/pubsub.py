"""The path of notifications about machines: a log sink, the topic it writes to, our subscription.

Every function looks for a resource before it creates or removes the resource, and takes only what
has our ownership label. All raise the errors of `errors.py`.
"""

from collections.abc import Callable
from typing import Any

from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    must_be_ours,
    naming_request,
)
from activities.providers.gcp.names import LABEL, PREFIX, ownership_label, shared_name
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession

PUBLISHER = "roles/pubsub.publisher"
ACK_DEADLINE_S = 60
KEPT_S = 7 * 24 * 3600
"""How long a notification waits for us: as long as Google allows for this subscription."""


def topic_path(session: GoogleSession, provider_id: str) -> str:
    return f"projects/{session.project_id}/topics/{shared_name(provider_id)}"


def subscription_path(session: GoogleSession, provider_id: str) -> str:
    return f"projects/{session.project_id}/subscriptions/{shared_name(provider_id)}"


def make_topic(session: GoogleSession, provider_id: str) -> str:
    path = topic_path(session, provider_id)
    request = {"name": path, "labels": {LABEL: provider_id}}
    found = _found(f"topic {path}", session.publisher.get_topic, {"topic": path})
    if found is None:
        _ask(f"topic {path}", session.publisher.create_topic, request)
    else:
        must_be_ours(path, found.labels.get(LABEL), provider_id)
    return path


def remove_topic(session: GoogleSession, provider_id: str) -> str:
    path = topic_path(session, provider_id)
    found = _found(f"topic {path}", session.publisher.get_topic, {"topic": path})
    if found is not None:
        must_be_ours(path, found.labels.get(LABEL), provider_id)
        _found(f"topic {path}", session.publisher.delete_topic, {"topic": path})
    return path


def make_subscription(session: GoogleSession, provider_id: str) -> str:
    """Find or create the subscription, which never expires, even if it is not read for long."""
    path = subscription_path(session, provider_id)
    request = {
        "name": path,
        "topic": topic_path(session, provider_id),
        "ack_deadline_seconds": ACK_DEADLINE_S,
        "message_retention_duration": {"seconds": KEPT_S},
        "expiration_policy": {},
        "labels": {LABEL: provider_id},
    }
    asked = f"subscription {path}"
    found = _found(asked, session.subscriber.get_subscription, {"subscription": path})
    if found is None:
        _ask(asked, session.subscriber.create_subscription, request)
    else:
        must_be_ours(path, found.labels.get(LABEL), provider_id)
    return path


def remove_subscription(session: GoogleSession, provider_id: str) -> str:
    path = subscription_path(session, provider_id)
    asked, request = f"subscription {path}", {"subscription": path}
    found = _found(asked, session.subscriber.get_subscription, request)
    if found is not None:
        must_be_ours(path, found.labels.get(LABEL), provider_id)
        _found(asked, session.subscriber.delete_subscription, request)
    return path


def notification_filter(project_id: str) -> str:
    """The filter of log entries: what Google and people do to machines with our names."""
    logs = f"projects/{project_id}/logs/cloudaudit.googleapis.com%2F"
    return (
        f'resource.type="gce_instance" AND protoPayload.resourceName:"/instances/{PREFIX}" AND '
        f'((logName="{logs}system_event" AND protoPayload.methodName:"compute.instances.") OR '
        f'(logName="{logs}activity" AND '
        r'protoPayload.methodName=~"compute\.instances\.(insert|delete|stop|start)$"))'
    )


def make_sink(session: GoogleSession, provider_id: str) -> str:
    """Find or create the sink with its own writer; the filter of an older release is replaced."""
    path = f"/v2/projects/{session.project_id}/sinks"
    name = shared_name(provider_id)
    wanted = {
        "name": name,
        "destination": f"pubsub.googleapis.com/{topic_path(session, provider_id)}",
        "filter": notification_filter(session.project_id),
        "description": ownership_label(provider_id),
    }
    found = _sink(session, provider_id)
    unique = {"uniqueWriterIdentity": "true"}
    if found is None:
        session.ask("POST", "logging", path, query=unique, body=wanted)
        return f"{path}/{name}".removeprefix("/v2/")
    must_be_ours(name, found.get("description"), ownership_label(provider_id))
    if any(found.get(each) != wanted[each] for each in ("destination", "filter")):
        query = {**unique, "updateMask": "destination,filter"}
        session.ask("PUT", "logging", f"{path}/{name}", query=query, body=wanted)
    return f"{path}/{name}".removeprefix("/v2/")


def remove_sink(session: GoogleSession, provider_id: str) -> str:
    """Remove the sink; silent when it does not exist.

    Raises: the errors of `errors.py`, such as GoogleRefusedError when the sink is not ours.
    """
    path = f"/v2/projects/{session.project_id}/sinks/{shared_name(provider_id)}"
    found = _sink(session, provider_id)
    if found is not None:
        must_be_ours(path, found.get("description"), ownership_label(provider_id))
        try:
            session.ask("DELETE", "logging", path)
        except GoogleRefusedError as refusal:
            if not refusal.is_missing:
                raise
    return path.removeprefix("/v2/")


def make_publisher(session: GoogleSession, provider_id: str) -> str:
    """Let the sink's writer publish to the topic, in addition to those who already may.

    Raises: GoogleUnavailableError, when the sink is not listed yet, or the policy has changed
    between our read and our write; the caller then retries.
    """
    sink = _sink(session, provider_id)
    if sink is None or not sink.get("writerIdentity"):
        raise GoogleUnavailableError(f"sink {shared_name(provider_id)}: does not exist yet")
    topic, writer = topic_path(session, provider_id), str(sink["writerIdentity"])
    policy = _policy(session, topic)
    held = [
        each for each in policy.bindings if each.role == PUBLISHER and not each.condition.expression
    ]
    if any(writer in each.members for each in held):
        return f"{topic}: {writer}"
    if held:
        held[0].members.append(writer)
    else:
        policy.bindings.add(role=PUBLISHER, members=[writer])
    _write_policy(session, topic, policy)
    return f"{topic}: {writer}"


def remove_publisher(session: GoogleSession, provider_id: str) -> str:
    """Withdraw the writer's grant; silent when the topic or the sink, and so the grant, is gone.

    Raises: the errors of `errors.py`, such as GoogleRefusedError when the key may not change it.
    """
    sink, topic = _sink(session, provider_id), topic_path(session, provider_id)
    writer = str(sink.get("writerIdentity", "")) if sink else ""
    try:
        policy = _policy(session, topic)
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            return topic
        raise
    held = [each for each in policy.bindings if writer in each.members and each.role == PUBLISHER]
    for binding in held:
        binding.members.remove(writer)
    if held:
        _write_policy(session, topic, policy)
    return f"{topic}: {writer}"


def _policy(session: GoogleSession, topic: str) -> Any:
    asked = f"policy of {topic}"
    return _ask(asked, session.publisher.get_iam_policy, {"resource": topic})


def _write_policy(session: GoogleSession, topic: str, policy: Any) -> None:
    """Write the policy with the etag with which it was read, so no other change is lost."""
    asked = f"policy of {topic}"
    try:
        _ask(asked, session.publisher.set_iam_policy, {"resource": topic, "policy": policy})
    except GoogleRefusedError as refusal:
        if refusal.code == 409:
            raise GoogleUnavailableError(f"{asked}: somebody else has just changed it") from refusal
        raise


def _sink(session: GoogleSession, provider_id: str) -> dict[str, Any] | None:
    path = f"/v2/projects/{session.project_id}/sinks/{shared_name(provider_id)}"
    try:
        return session.ask("GET", "logging", path)
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            return None
        raise


def _found(asked: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
    """The answer; None when the resource does not exist."""
    try:
        return _ask(asked, method, request)
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            return None
        raise


def _ask(asked: str, method: Callable[..., Any], request: dict[str, Any]) -> Any:
    """One call over gRPC, without the library's own retries, because Temporal retries."""
    with naming_request(asked):
        return method(request=request, timeout=ANSWER_LIMIT_S, retry=None)
