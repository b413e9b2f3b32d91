"""Pub/Sub by Google's client library, and the log entries that sinks carry to it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.api_core import exceptions
from google.pubsub_v1 import PublisherClient, PubsubMessage, SubscriberClient

from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.sinks import route
from tests.doubles.gcp.test_platform import session

FILTER = (
    'resource.type="gce_instance" AND protoPayload.resourceName:"/instances/burst-" AND ('
    '(logName="projects/burst-4711/logs/cloudaudit.googleapis.com%2Fsystem_event" AND '
    'protoPayload.methodName:"compute.instances.") OR '
    '(logName="projects/burst-4711/logs/cloudaudit.googleapis.com%2Factivity" AND '
    r'protoPayload.methodName=~"compute\.instances\.(insert|delete|stop|start)$"))'
)


class Life:
    """A topic and a subscription of a project, by Google's clients."""

    def __init__(self, double: GcpDouble) -> None:
        self.topic = f"projects/{double.project.id}/topics/life"
        self.name = f"projects/{double.project.id}/subscriptions/life"
        options: Any = {"api_endpoint": double.pubsub_address}
        self.publisher = PublisherClient(client_options=options)
        self.subscriber = SubscriberClient(client_options=options)
        self.publisher.create_topic(name=self.topic)
        self.subscriber.create_subscription(
            request={"name": self.name, "topic": self.topic, "ack_deadline_seconds": 60}
        )

    def send(self, *messages: PubsubMessage) -> None:
        self.publisher.publish(topic=self.topic, messages=list(messages))

    def pull(self) -> list[Any]:
        asked = {"subscription": self.name, "max_messages": 10}
        return list(self.subscriber.pull(request=asked).received_messages)

    def acknowledge(self, received: list[Any]) -> None:
        ids = [each.ack_id for each in received]
        self.subscriber.acknowledge(subscription=self.name, ack_ids=ids)


@pytest.fixture
def life(gcp: GcpDouble) -> Life:
    gcp.cloud.pubsub.pull_waits_s = 0.01
    return Life(gcp)


def test_a_message_comes_again_until_it_is_acknowledged(gcp: GcpDouble, life: Life) -> None:
    with pytest.raises(exceptions.AlreadyExists):
        life.publisher.create_topic(name=life.topic)
    life.send(PubsubMessage(data=b"one", attributes={"a": "b"}))
    [first] = life.pull()
    assert (first.message.data, dict(first.message.attributes)) == (b"one", {"a": "b"})
    assert life.pull() == []
    gcp.cloud.pubsub.redeliver(life.name)
    [again] = life.pull()
    assert again.message.message_id == first.message.message_id
    life.acknowledge([first])
    gcp.cloud.pubsub.redeliver(life.name)
    [third] = life.pull()
    life.acknowledge([third])
    gcp.cloud.pubsub.redeliver(life.name)
    assert life.pull() == []


def test_messages_are_repeated_and_out_of_order_when_asked(gcp: GcpDouble, life: Life) -> None:
    gcp.cloud.pubsub.duplicate_every = 2
    gcp.cloud.pubsub.shuffle = True
    sent = [str(number).encode() for number in range(6)]
    life.send(*(PubsubMessage(data=each) for each in sent))
    got = [each.message.data for each in life.pull()]
    assert sorted(got) == sorted([*sent, b"1", b"3", b"5"])
    assert got != sorted(got)


def test_a_sink_delivers_only_what_its_filter_takes_and_its_writer_may_publish(
    gcp: GcpDouble, life: Life
) -> None:
    asks = session(gcp)
    sinks = f"{gcp.url}/v2/projects/{gcp.project.id}/sinks?uniqueWriterIdentity=true"
    body = {"name": "life", "destination": f"pubsub.googleapis.com/{life.topic}", "filter": FILTER}
    made = asks.post(sinks, json=body).json()
    assert made["writerIdentity"] == f"serviceAccount:{gcp.project.logging_agent}"
    assert asks.post(sinks, json=body).status_code == 409
    assert asks.post(sinks, json={**body, "name": "x", "filter": "a = "}).status_code == 400
    entry = {
        "logName": "projects/burst-4711/logs/cloudaudit.googleapis.com%2Factivity",
        "resource": {"type": "gce_instance"},
        "timestamp": "2026-11-21T20:00:00.000000Z",
        "protoPayload": {
            "methodName": "v1.compute.instances.delete",
            "resourceName": "projects/burst-4711/zones/us-west1-a/instances/burst-1",
        },
    }
    route(gcp.cloud, gcp.project.id, entry)
    assert life.pull() == []
    assert "is no roles/pubsub.publisher" in gcp.cloud.undelivered[0][1]
    policy = life.publisher.get_iam_policy(request={"resource": life.topic})
    policy.bindings.add(role="roles/pubsub.publisher", members=[made["writerIdentity"]])
    changed: Any = {"resource": life.topic, "policy": policy}
    life.publisher.set_iam_policy(request=changed)
    with pytest.raises(exceptions.Aborted):
        life.publisher.set_iam_policy(request=changed)
    route(gcp.cloud, gcp.project.id, {**entry, "resource": {"type": "gce_disk"}})
    route(gcp.cloud, gcp.project.id, entry)
    [received] = life.pull()
    assert json.loads(received.message.data) == entry
