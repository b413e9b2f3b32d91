"""The cloud resources that a provider has once, in the order of creation; removal is in reverse."""

from dataclasses import dataclass

from activities.providers.gcp import network, pubsub
from activities.providers.gcp.network import Part


@dataclass(frozen=True)
class Making:
    """How one resource is created and removed. Both look for it first, and return its path."""

    make: Part
    remove: Part


RESOURCES: dict[str, Making] = {
    "topic": Making(pubsub.make_topic, pubsub.remove_topic),
    "subscription": Making(pubsub.make_subscription, pubsub.remove_subscription),
    "sink": Making(pubsub.make_sink, pubsub.remove_sink),
    "publisher": Making(pubsub.make_publisher, pubsub.remove_publisher),
    "network": Making(network.make_network, network.remove_network),
    "ssh-firewall": Making(network.make_ssh_firewall, network.remove_ssh_firewall),
    "inner-firewall": Making(network.make_inner_firewall, network.remove_inner_firewall),
}
