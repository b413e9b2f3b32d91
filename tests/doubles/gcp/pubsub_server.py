"""Pub/Sub's gRPC services over `pubsub.py`: Publisher, Subscriber and IAMPolicy.

Without credentials, as clients talk to PUBSUB_EMULATOR_HOST. Importing it costs a second: the
message types are those of google-cloud-pubsub.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc  # type: ignore[import-untyped]
from google.iam.v1 import iam_policy_pb2, policy_pb2  # type: ignore[import-untyped]
from google.protobuf import empty_pb2
from google.pubsub_v1 import types

from tests.doubles.gcp.cloud import Cloud
from tests.doubles.gcp.faults import AT_THE_DOOR, FaultKind
from tests.doubles.gcp.pubsub import DELETED_TOPIC, Delivered, Message, PubSub, Subscription, Topic

Status = grpc.StatusCode
STREAM_LOOKS_AGAIN_S = 0.2
THREADS = 24
_NAME = r"(?!goog)[A-Za-z][\w.~+%-]{2,254}"
_REFUSALS = {
    FaultKind.LOST_REQUEST: Status.UNAVAILABLE,
    FaultKind.LOST_REPLY: Status.UNAVAILABLE,
    FaultKind.UNAVAILABLE: Status.UNAVAILABLE,
    FaultKind.STOCKOUT_AT_ONCE: Status.UNAVAILABLE,
    FaultKind.QUOTA: Status.RESOURCE_EXHAUSTED,
    FaultKind.RATE_LIMIT: Status.RESOURCE_EXHAUSTED,
    FaultKind.FORBIDDEN: Status.PERMISSION_DENIED,
    FaultKind.CONFLICT: Status.ALREADY_EXISTS,
}


class _AnswerError(Exception):
    """A status other than OK."""

    def __init__(self, status: Any, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class PubSubServer:
    """Serves from `start` to `close`; the port is known at once."""

    def __init__(self, cloud: Cloud, host: str, port: int = 0) -> None:
        self.cloud = cloud
        self._pubsub: PubSub = cloud.pubsub
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="gcp-double-pubsub"),
            options=(("grpc.so_reuseport", 0),),
        )
        self._server.add_generic_rpc_handlers(self._handlers())
        self.port: int = self._server.add_insecure_port(f"{host}:{port}")
        self.address = f"{host}:{self.port}"
        self._closed = threading.Event()

    def start(self) -> None:
        self._server.start()

    def close(self) -> None:
        self._closed.set()
        with self._pubsub.changed:
            self._pubsub.changed.notify_all()
        self._server.stop(0).wait(5)
        # It and its handlers hold each other: what it runs when it goes would be run by whatever
        # thread is at work then, also by one that is just being cancelled.
        del self._server

    def _handlers(self) -> list[Any]:
        generic = grpc.method_handlers_generic_handler
        return [
            generic("google.pubsub.v1.Publisher", self._publisher()),
            generic("google.pubsub.v1.Subscriber", self._subscriber()),
            generic("google.iam.v1.IAMPolicy", self._iam()),
        ]

    def _publisher(self) -> dict[str, Any]:
        return {
            "CreateTopic": self._call("CreateTopic", self._create_topic, types.Topic, types.Topic),
            "GetTopic": self._call("GetTopic", self._get_topic, types.GetTopicRequest, types.Topic),
            "ListTopics": self._call(
                "ListTopics", self._list_topics, types.ListTopicsRequest, types.ListTopicsResponse
            ),
            "DeleteTopic": self._call(
                "DeleteTopic", self._delete_topic, types.DeleteTopicRequest, empty_pb2.Empty
            ),
            "Publish": self._call(
                "Publish", self._publish, types.PublishRequest, types.PublishResponse
            ),
        }

    def _subscriber(self) -> dict[str, Any]:
        asked, empty = types.Subscription, empty_pb2.Empty
        return {
            "CreateSubscription": self._call(
                "CreateSubscription", self._create_subscription, asked, asked
            ),
            "GetSubscription": self._call(
                "GetSubscription", self._get_subscription, types.GetSubscriptionRequest, asked
            ),
            "ListSubscriptions": self._call(
                "ListSubscriptions", self._list_subscriptions,
                types.ListSubscriptionsRequest, types.ListSubscriptionsResponse,
            ),
            "DeleteSubscription": self._call(
                "DeleteSubscription", self._delete_subscription,
                types.DeleteSubscriptionRequest, empty,
            ),
            "Pull": self._call("Pull", self._pull, types.PullRequest, types.PullResponse),
            "Acknowledge": self._call(
                "Acknowledge", self._acknowledge, types.AcknowledgeRequest, empty
            ),
            "ModifyAckDeadline": self._call(
                "ModifyAckDeadline", self._extend, types.ModifyAckDeadlineRequest, empty
            ),
            "StreamingPull": grpc.stream_stream_rpc_method_handler(
                self._stream,
                types.StreamingPullRequest.deserialize,
                types.StreamingPullResponse.serialize,
            ),
        }  # fmt: skip

    def _iam(self) -> dict[str, Any]:
        policy = policy_pb2.Policy
        return {
            "GetIamPolicy": self._call(
                "GetIamPolicy", self._get_policy, iam_policy_pb2.GetIamPolicyRequest, policy
            ),
            "SetIamPolicy": self._call(
                "SetIamPolicy", self._set_policy, iam_policy_pb2.SetIamPolicyRequest, policy
            ),
            "TestIamPermissions": self._call(
                "TestIamPermissions", self._test_permissions,
                iam_policy_pb2.TestIamPermissionsRequest, iam_policy_pb2.TestIamPermissionsResponse,
            ),
        }  # fmt: skip

    def _call(self, name: str, do: Callable[[Any], Any], asked: Any, answered: Any) -> Any:
        """One method: its faults, its errors, and the types on the wire."""

        def serve(request: Any, context: Any) -> Any:
            try:
                return self._with_faults(name, request, do)
            except _AnswerError as error:
                context.abort(error.status, error.message)

        return grpc.unary_unary_rpc_method_handler(
            serve,
            getattr(asked, "deserialize", None) or asked.FromString,
            getattr(answered, "serialize", None) or answered.SerializeToString,
        )

    def _with_faults(self, name: str, request: Any, do: Callable[[Any], Any]) -> Any:
        if self.cloud.faults.is_unreachable():
            raise _AnswerError(Status.UNAVAILABLE, "failed to connect to all addresses")
        resource = str(
            getattr(request, "name", "") or getattr(request, "topic", "")
            or getattr(request, "subscription", "") or getattr(request, "resource", "")
        ).rsplit("/", 1)[-1]  # fmt: skip
        with self.cloud.lock:
            fault = self.cloud.faults.take(AT_THE_DOOR, f"pubsub.{name}", resource)
        if fault is None:
            return do(request)
        if fault.kind is FaultKind.SLOW:
            time.sleep(fault.seconds)
            return do(request)
        if fault.kind is FaultKind.LOST_REPLY:
            do(request)
        raise _AnswerError(_REFUSALS[fault.kind], f"injected: {fault.kind.value}")

    def _create_topic(self, asked: Any) -> Any:
        self._check_name(asked.name, "topics")
        with self._pubsub.changed:
            if asked.name in self._pubsub.topics:
                raise _exists(asked.name)
            self._pubsub.topics[asked.name] = Topic(asked.name, types.Topic.serialize(asked))
        return asked

    def _get_topic(self, asked: Any) -> Any:
        return types.Topic.deserialize(self._topic(asked.topic).settings)

    def _list_topics(self, asked: Any) -> Any:
        found = [
            types.Topic.deserialize(each.settings)
            for each in self._pubsub.topics.values()
            if each.name.startswith(f"{asked.project}/")
        ]
        return types.ListTopicsResponse(topics=found)

    def _delete_topic(self, asked: Any) -> Any:
        self._pubsub.delete_topic(self._topic(asked.topic).name)
        return empty_pb2.Empty()

    def _publish(self, asked: Any) -> Any:
        self._topic(asked.topic)
        ids = [
            self._pubsub.publish(
                asked.topic, Message(each.data, dict(each.attributes), each.ordering_key)
            )
            for each in asked.messages
        ]
        return types.PublishResponse(message_ids=ids)

    def _create_subscription(self, asked: Any) -> Any:
        self._check_name(asked.name, "subscriptions")
        self._topic(asked.topic)
        deadline_s = asked.ack_deadline_seconds or 10
        if not 10 <= deadline_s <= 600:
            message = f"Invalid ack deadline given (ack_deadline_seconds={deadline_s})."
            raise _AnswerError(Status.INVALID_ARGUMENT, message)
        asked.ack_deadline_seconds = deadline_s
        asked.state = types.Subscription.State.ACTIVE
        with self._pubsub.changed:
            if asked.name in self._pubsub.subscriptions:
                raise _exists(asked.name)
            self._pubsub.subscriptions[asked.name] = Subscription(
                asked.name, asked.topic, deadline_s, _written(asked)
            )
        return asked

    def _get_subscription(self, asked: Any) -> Any:
        return _told(self._subscription(asked.subscription))

    def _list_subscriptions(self, asked: Any) -> Any:
        found = [
            _told(each)
            for each in self._pubsub.subscriptions.values()
            if each.name.startswith(f"{asked.project}/")
        ]
        return types.ListSubscriptionsResponse(subscriptions=found)

    def _delete_subscription(self, asked: Any) -> Any:
        with self._pubsub.changed:
            del self._pubsub.subscriptions[self._subscription(asked.subscription).name]
            self._pubsub.changed.notify_all()
        return empty_pb2.Empty()

    def _pull(self, asked: Any) -> Any:
        found: list[Delivered] = []
        waits_s = 0.0 if asked.return_immediately else self._pubsub.pull_waits_s
        deadline = time.monotonic() + waits_s
        with self._pubsub.changed:
            while not self._closed.is_set():
                self._subscription(asked.subscription)
                found = self._pubsub.pull(asked.subscription, asked.max_messages)
                left = deadline - time.monotonic()
                if found or left <= 0:
                    break
                again = self._pubsub.next_visible_s(asked.subscription)
                self._pubsub.changed.wait(min(left, again))
        return types.PullResponse(received_messages=[_received(each) for each in found])

    def _acknowledge(self, asked: Any) -> Any:
        self._pubsub.acknowledge(self._subscription(asked.subscription).name, list(asked.ack_ids))
        return empty_pb2.Empty()

    def _extend(self, asked: Any) -> Any:
        name = self._subscription(asked.subscription).name
        self._pubsub.extend(name, list(asked.ack_ids), asked.ack_deadline_seconds)
        return empty_pb2.Empty()

    def _stream(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Deliver until the client goes; what it says meanwhile is heard on a thread."""
        try:
            first = next(requests)
            name = self._subscription(first.subscription).name
        except StopIteration:
            return
        except _AnswerError as error:
            context.abort(error.status, error.message)
        self._heard(name, first)
        threading.Thread(target=self._hear, args=(name, requests), daemon=True).start()
        while context.is_active() and not self._closed.is_set():
            if self.cloud.faults.is_unreachable() or name not in self._pubsub.subscriptions:
                gone = name not in self._pubsub.subscriptions
                context.abort(Status.NOT_FOUND if gone else Status.UNAVAILABLE, "stream broken")
            with self._pubsub.changed:
                found = self._pubsub.pull(name, 1000)
                if not found:
                    self._pubsub.changed.wait(STREAM_LOOKS_AGAIN_S)
            if found:
                yield types.StreamingPullResponse(
                    received_messages=[_received(each) for each in found]
                )

    def _hear(self, name: str, requests: Iterator[Any]) -> None:
        try:
            for request in requests:
                self._heard(name, request)
        except (grpc.RpcError, KeyError):
            return

    def _heard(self, name: str, request: Any) -> None:
        if request.ack_ids:
            self._pubsub.acknowledge(name, list(request.ack_ids))
        asked = zip(request.modify_deadline_ack_ids, request.modify_deadline_seconds, strict=False)
        for ack_id, deadline_s in asked:
            self._pubsub.extend(name, [ack_id], deadline_s)

    def _get_policy(self, asked: Any) -> Any:
        return _policy(self._topic(asked.resource))

    def _set_policy(self, asked: Any) -> Any:
        with self._pubsub.changed:
            topic = self._topic(asked.resource)
            if asked.policy.etag and asked.policy.etag != topic.etag:
                raise _AnswerError(
                    Status.ABORTED,
                    "There were concurrent policy changes. Please retry the whole "
                    "read-modify-write with exponential backoff.",
                )
            topic.policy = {each.role: set(each.members) for each in asked.policy.bindings}
            return _policy(topic)

    def _test_permissions(self, asked: Any) -> Any:
        return iam_policy_pb2.TestIamPermissionsResponse(permissions=asked.permissions)

    def _check_name(self, name: str, kind: str) -> None:
        found = re.fullmatch(rf"projects/([^/]+)/{kind}/{_NAME}", name)
        if found is None:
            message = f"Invalid [{kind}] name: (name={name})"
            raise _AnswerError(Status.INVALID_ARGUMENT, message)
        project = self.cloud.find_project(found[1])
        if project is None:
            raise _AnswerError(Status.NOT_FOUND, "Requested project not found or user does not "
                               f"have access to it (project={found[1]}).")  # fmt: skip
        if "pubsub.googleapis.com" not in project.services:
            raise _AnswerError(
                Status.PERMISSION_DENIED,
                f"Cloud Pub/Sub API has not been used in project {project.number} before or it is "
                "disabled.",
            )

    def _topic(self, name: str) -> Topic:
        topic = self._pubsub.topics.get(name)
        if topic is None:
            raise _missing(name)
        return topic

    def _subscription(self, name: str) -> Subscription:
        subscription = self._pubsub.subscriptions.get(name)
        if subscription is None:
            raise _missing(name)
        return subscription


def _written(message: Any) -> bytes:
    written: bytes = type(message).serialize(message)
    return written


def _missing(name: str) -> _AnswerError:
    short = name.rsplit("/", 1)[-1]
    return _AnswerError(Status.NOT_FOUND, f"Resource not found (resource={short}).")


def _exists(name: str) -> _AnswerError:
    short = name.rsplit("/", 1)[-1]
    message = f"Resource already exists in the project (resource={short})."
    return _AnswerError(Status.ALREADY_EXISTS, message)


def _told(subscription: Subscription) -> Any:
    told = types.Subscription.deserialize(subscription.settings)
    if subscription.topic == DELETED_TOPIC:
        told.topic = DELETED_TOPIC
    return told


def _policy(topic: Topic) -> Any:
    return policy_pb2.Policy(
        version=1,
        etag=topic.etag,
        bindings=[
            policy_pb2.Binding(role=role, members=sorted(members))
            for role, members in sorted(topic.policy.items())
        ],
    )


def _received(delivered: Delivered) -> Any:
    message = delivered.message
    return types.ReceivedMessage(
        ack_id=delivered.ack_id,
        delivery_attempt=0,
        message=types.PubsubMessage(
            data=message.data,
            attributes=dict(message.attributes),
            ordering_key=message.ordering_key,
            message_id=message.id,
            publish_time={"seconds": int(message.published_at)},
        ),
    )
