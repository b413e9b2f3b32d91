"""What a provider has once in its project, in the order of making; removed in the reverse."""

from dataclasses import dataclass

from activities.providers.gcp import messages, network
from activities.providers.gcp.network import Part


@dataclass(frozen=True)
class Making:
    """How one part is made and removed: each looks first, and returns what it is called."""

    make: Part
    remove: Part


PARTS: dict[str, Making] = {
    "topic": Making(messages.make_topic, messages.remove_topic),
    "subscription": Making(messages.make_subscription, messages.remove_subscription),
    "sink": Making(messages.make_sink, messages.remove_sink),
    "publisher": Making(messages.make_publisher, messages.remove_publisher),
    "network": Making(network.make_network, network.remove_network),
    "ssh-firewall": Making(network.make_ssh_firewall, network.remove_ssh_firewall),
    "inner-firewall": Making(network.make_inner_firewall, network.remove_inner_firewall),
}
