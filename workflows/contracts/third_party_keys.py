"""Third-party keys: what a project keeps of other services, for sources, jobs and registries."""

from enum import StrEnum


class KeyType(StrEnum):
    """The types of third-party keys; a project has at most one key of each."""

    AWS = "aws"
    AZURE = "azure"
    DOCKER = "docker"
    GCP = "gcp"
    GIT = "git"
    HUGGINGFACE = "huggingface"
    KAGGLE = "kaggle"
    NGC = "ngc"
    WASABI = "wasabi"


REGISTRY_TYPES = (KeyType.DOCKER, KeyType.NGC)
"""The types of keys with which container images are pulled."""
