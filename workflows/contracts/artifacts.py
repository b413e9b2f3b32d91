"""Artifacts: datasets, models, checkpoints and volumes, their content, and their lifecycle's input.

The bytes of a content never pass through a workflow, which knows its hash and its size alone.
"""

from enum import StrEnum

from pydantic import Field

from workflows.contracts.base import Contract

SHA256 = r"^[0-9a-f]{64}$"


class ArtifactStatus(StrEnum):
    """The statuses of an artifact."""

    NEW = "new"
    TRANSFERRING = "transferring"
    READY = "ready"
    FAILED = "failed"
    REMOVING = "removing"
    ARCHIVED = "archived"


class Content(Contract):
    """The content of an artifact: the hash of its manifest, and how much it is."""

    sha256: str = Field(pattern=SHA256)
    """The hash of the manifest, which names each part of the content by its own hash."""
    size_bytes: int = Field(ge=0)
    """The size of all parts together: what a transfer sends."""
    unpacked_bytes: int = Field(ge=0)
    """The size of all files together."""
    file_count: int = Field(ge=0)
