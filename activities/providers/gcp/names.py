"""The names of our resources at Google, and the labels by which we recognize them as ours."""

PREFIX = "baseload-"
LABEL = "baseload-provider"
OFFER_LABEL = "baseload-offer"
"""The label that says for which of its lease's offers a machine was created."""
NODE_TAG = "baseload-node"
"""The network tag of every machine of ours, to which the firewall rules refer."""


def shared_name(provider_id: str) -> str:
    """The name of each resource that a provider has once: topic, subscription, sink, network."""
    return f"{PREFIX}{provider_id}"


def ownership_label(provider_id: str) -> str:
    """The description that replaces the ownership label on resources that have no labels."""
    return f"made by baseload for {provider_id}"


def subnetwork_name(provider_id: str, cloud_region: str) -> str:
    """The name of a provider's subnetwork in one cloud region."""
    return f"{shared_name(provider_id)}-{cloud_region}"
