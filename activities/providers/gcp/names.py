"""What our things are called at Google, and the label by which we know them for ours."""

PREFIX = "baseload-"
LABEL = "baseload-provider"
OFFER_LABEL = "baseload-offer"
"""For which of its lease's offers a machine was made."""
NODE_TAG = "baseload-node"
"""Network tag of every machine of ours: the firewalls let in by it."""


def shared_name(provider_id: str) -> str:
    """Of everything that a provider has once: topic, subscription, sink, network."""
    return f"{PREFIX}{provider_id}"


def ownership_label(provider_id: str) -> str:
    """The description of what we make where there are no labels."""
    return f"made by baseload for {provider_id}"


def subnetwork_name(provider_id: str, cloud_region: str) -> str:
    """Of the part of a provider's network that is in one region."""
    return f"{shared_name(provider_id)}-{cloud_region}"
