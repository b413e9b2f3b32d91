"""The registries of images, and which third-party key opens each."""

from collections.abc import Collection, Mapping

from workflows.contracts.third_party_keys import KeyType

NGC_REGISTRY = "nvcr.io"
NGC_USER = "$oauthtoken"
"""The user of NVIDIA's registry, with the API key as the password."""


def registry_of(full_image: str) -> str:
    """The registry of an image that names one."""
    return full_image.partition("/")[0]


def registry_key(full_image: str, registries: Mapping[KeyType, Collection[str]]) -> KeyType | None:
    """The type of the key that opens an image's registry; None: the project has no such key.

    registries: by the types of the project's keys, the registries that a `docker` key names.
    """
    registry = registry_of(full_image)
    if registry in registries.get(KeyType.DOCKER, ()):
        return KeyType.DOCKER
    if registry == NGC_REGISTRY and KeyType.NGC in registries:
        return KeyType.NGC
    return None
