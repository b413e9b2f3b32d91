"""What a provider has once in its project: found before it is made, and removed exactly."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import compute_v1

from activities.providers.gcp.errors import GoogleRefusedError, GoogleUnavailableError
from activities.providers.gcp.names import LABEL, shared_name
from activities.providers.gcp.project_resources import RESOURCES
from activities.providers.gcp.session import GoogleSession
from activities.settings import settings
from tests.doubles.gcp.double import GcpDouble
from tests.doubles.gcp.faults import Fault, FaultKind
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.providers import traits_of

OURS, OTHER = "prv-01abc", "prv-02def"
MESSAGES = ("topic", "subscription", "sink", "publisher")
NETWORK = ("network", "ssh-firewall", "inner-firewall")
PUBLISHER = "roles/pubsub.publisher"


@pytest.fixture(autouse=True)
def without_threads_left(google: GoogleSession) -> Iterator[None]:
    """gRPC's channels are closed with the test."""
    yield
    for client in ("publisher", "subscriber"):
        if client in google.__dict__:
            google.__dict__[client].transport.close()


def made(google: GoogleSession, *names: str, provider_id: str = OURS) -> list[str]:
    return [RESOURCES[name].make(google, provider_id) for name in names]


def removed(google: GoogleSession, *names: str, provider_id: str = OURS) -> list[str]:
    return [RESOURCES[name].remove(google, provider_id) for name in reversed(names)]


def state(double: GcpDouble) -> dict[str, Any]:
    """Everything that there is in the project, as a value that can be compared."""
    pubsub = double.cloud.pubsub
    return {
        "topics": {name: copy.deepcopy(topic.policy) for name, topic in pubsub.topics.items()},
        "subscriptions": {name: one.topic for name, one in pubsub.subscriptions.items()},
        "sinks": dict(double.cloud.sinks),
        "network": [
            body["name"]
            for kind in ("networks", "firewalls")
            for body in double.cloud.resources.listed(f"projects/{double.project.id}/global/{kind}")
        ],
    }


def test_the_workflow_and_the_driver_mean_the_same_parts() -> None:
    assert tuple(RESOURCES) == traits_of(ProviderKind.GCP).resources


def test_news_of_machines_reaches_our_subscription(gcp: GcpDouble, google: GoogleSession) -> None:
    topic, subscription, sink, _ = made(google, *MESSAGES)
    assert topic == f"projects/{gcp.project.id}/topics/baseload-{OURS}"
    there = state(gcp)
    assert there["subscriptions"] == {subscription: topic}
    assert there["topics"][topic][PUBLISHER] == {f"serviceAccount:{gcp.project.logging_agent}"}
    assert list(there["sinks"]) == [sink]


def test_machines_are_reached_over_ssh_from_where_we_are_and_by_each_other(
    gcp: GcpDouble, google: GoogleSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_GCP_SSH_SOURCE_RANGES", "198.51.100.0/24, 203.0.113.7/32")
    settings.cache_clear()
    network, *firewalls = made(google, *NETWORK)
    ssh, inner = (gcp.cloud.resources.get(path) for path in firewalls)
    assert ssh["sourceRanges"] == ["198.51.100.0/24", "203.0.113.7/32"]
    assert ssh["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    assert inner["sourceTags"] == inner["targetTags"] == ssh["targetTags"] == ["baseload-node"]
    assert gcp.cloud.resources.get(network)["autoCreateSubnetworks"] is False


def test_doing_it_again_changes_nothing(gcp: GcpDouble, google: GoogleSession) -> None:
    first = made(google, *RESOURCES)
    before = state(gcp)
    assert made(google, *RESOURCES) == first
    assert state(gcp) == before


def test_removal_takes_exactly_what_is_ours_and_is_silent_when_it_is_gone(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    made(google, *RESOURCES, provider_id=OTHER)
    theirs = state(gcp)
    made(google, *RESOURCES)
    for _ in range(2):
        removed(google, *RESOURCES)
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
    with pytest.raises(GoogleUnavailableError, match="does not exist yet"):
        made(google, "publisher")


def test_a_network_that_something_still_uses_is_left_with_googles_words(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    (network,) = made(google, "network")
    google.compute(compute_v1.SubnetworksClient).insert_unary(
        project=gcp.project.id,
        region="us-central1",
        subnetwork_resource=compute_v1.Subnetwork(
            name="somebodys", network=network, ip_cidr_range="10.1.0.0/16"
        ),
    )
    with pytest.raises(GoogleRefusedError, match="already being used by") as refusal:
        removed(google, "network")
    assert refusal.value.is_in_use


@pytest.mark.parametrize("kind", [FaultKind.LOST_REQUEST, FaultKind.LOST_REPLY])
def test_a_network_whose_making_went_unanswered_is_made_once(
    gcp: GcpDouble, google: GoogleSession, kind: FaultKind
) -> None:
    gcp.cloud.faults.add(Fault(kind, "compute.networks.insert", times=1))
    tries = 0
    while tries < 50:
        tries += 1
        with contextlib.suppress(GoogleUnavailableError):
            made(google, "network")
            break
    assert 1 < tries < 50
    assert len(state(gcp)["network"]) == 1


def test_an_operation_that_ends_badly_is_refused_with_its_code(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.cloud.faults.add(Fault(FaultKind.OPERATION_QUOTA, "compute.networks.insert", times=1))
    with pytest.raises(GoogleRefusedError) as refusal:
        made(google, "network")
    assert refusal.value.reason == "QUOTA_EXCEEDED"
