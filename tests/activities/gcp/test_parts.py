"""What a provider has once in its project: found before it is made, and removed exactly."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from activities.providers.gcp.errors import GoogleRefusedError, GoogleUnavailableError
from activities.providers.gcp.names import LABEL, shared_name
from activities.providers.gcp.parts import PARTS
from activities.providers.gcp.session import GoogleSession
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from workflows.contracts import provider
from workflows.contracts.states import ProviderKind

OURS, OTHER = "prv-01abc", "prv-02def"
MESSAGES = ("topic", "subscription", "sink", "publisher")
PUBLISHER = "roles/pubsub.publisher"


@pytest.fixture(autouse=True)
def without_threads_left(google: GoogleSession) -> Iterator[None]:
    """gRPC's channels are closed with the test."""
    yield
    for client in ("publisher", "subscriber"):
        if client in google.__dict__:
            google.__dict__[client].transport.close()


def made(google: GoogleSession, *names: str, provider_id: str = OURS) -> list[str]:
    return [PARTS[name].make(google, provider_id) for name in names]


def removed(google: GoogleSession, *names: str, provider_id: str = OURS) -> list[str]:
    return [PARTS[name].remove(google, provider_id) for name in reversed(names)]


def state(double: GcpDouble) -> dict[str, Any]:
    """Everything that there is in the project, as a value that can be compared."""
    pubsub = double.cloud.pubsub
    return {
        "topics": {name: copy.deepcopy(topic.policy) for name, topic in pubsub.topics.items()},
        "subscriptions": {name: one.topic for name, one in pubsub.subscriptions.items()},
        "sinks": dict(double.cloud.sinks),
    }


def test_the_workflow_and_the_driver_mean_the_same_parts() -> None:
    assert tuple(PARTS) == provider.PARTS[ProviderKind.GCP]


def test_news_of_machines_reaches_our_subscription(gcp: GcpDouble, google: GoogleSession) -> None:
    topic, subscription, sink, _ = made(google, *MESSAGES)
    assert topic == f"projects/{gcp.project.id}/topics/baseload-{OURS}"
    there = state(gcp)
    assert there["subscriptions"] == {subscription: topic}
    assert there["topics"][topic][PUBLISHER] == {f"serviceAccount:{gcp.project.logging_agent}"}
    assert list(there["sinks"]) == [sink]


def test_doing_it_again_changes_nothing(gcp: GcpDouble, google: GoogleSession) -> None:
    first = made(google, *MESSAGES)
    before = state(gcp)
    assert made(google, *MESSAGES) == first
    assert state(gcp) == before


def test_removal_takes_exactly_what_is_ours_and_is_silent_when_it_is_gone(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    made(google, *MESSAGES, provider_id=OTHER)
    theirs = state(gcp)
    made(google, *MESSAGES)
    for _ in range(2):
        removed(google, *MESSAGES)
        assert state(gcp) == theirs


def test_a_grant_that_others_have_stays_when_ours_is_added_and_removed(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    (topic, *_) = made(google, "topic", "sink")
    policy = gcp.cloud.pubsub.topics[topic].policy
    policy[PUBLISHER] = {"user:ada@example.com"}
    policy["roles/pubsub.viewer"] = {"user:bob@example.com"}
    made(google, "publisher")
    assert len(policy_of(gcp, topic)[PUBLISHER]) == 2
    removed(google, "publisher")
    assert policy_of(gcp, topic) == {
        PUBLISHER: {"user:ada@example.com"},
        "roles/pubsub.viewer": {"user:bob@example.com"},
    }


def policy_of(gcp: GcpDouble, topic: str) -> dict[str, set[str]]:
    held = gcp.cloud.pubsub.topics[topic].policy
    return {role: members for role, members in held.items() if members}


def test_a_sink_of_an_older_release_gets_the_new_filter(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    made(google, "topic", "sink")
    before = state(gcp)
    path = f"/v2/projects/{gcp.project.id}/sinks/{shared_name(OURS)}"
    older = {**google.ask("GET", "logging", path), "filter": 'severity="ERROR"'}
    wanted = {name: older[name] for name in ("name", "destination", "filter", "description")}
    query = {"updateMask": "filter", "uniqueWriterIdentity": "true"}
    google.ask("PUT", "logging", path, query=query, body=wanted)
    made(google, "sink")
    found = google.ask("GET", "logging", path)
    assert 'resource.type="gce_instance"' in found["filter"]
    assert set(state(gcp)["sinks"]) == set(before["sinks"])


def test_what_has_our_name_and_not_our_mark_is_neither_taken_nor_removed(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    path = f"projects/{gcp.project.id}/topics/{shared_name(OURS)}"
    google.publisher.create_topic(request={"name": path, "labels": {LABEL: OTHER}})
    for act in (made, removed):
        with pytest.raises(GoogleRefusedError, match="is not ours"):
            act(google, "topic")
    assert path in gcp.cloud.pubsub.topics


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_REPLY])
def test_after_a_lost_answer_the_same_is_found_and_not_made_twice(
    gcp: GcpDouble, google: GoogleSession, kind: FaultKind
) -> None:
    made(google, "topic")
    gcp.cloud.faults.add(Fault(kind, "logging.projects.sinks.create", times=1))
    with pytest.raises(GoogleUnavailableError):
        made(google, "sink")
    made(google, "sink", "publisher")
    assert len(state(gcp)["sinks"]) == 1


def test_a_grant_waits_for_its_sink(google: GoogleSession) -> None:
    made(google, "topic")
    with pytest.raises(GoogleUnavailableError, match="not there yet"):
        made(google, "publisher")
