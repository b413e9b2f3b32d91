"""Effects of artifacts: the transfer of their content, its progress and its removal."""

from workflows.contracts import queues
from workflows.contracts.artifacts import Content, Progress, Source
from workflows.contracts.base import Contract, Done
from workflows.effects.effect import HEARTBEAT_S, Effect

TRANSFER_S = 24 * 3600
"""The longest attempt of one transfer, in seconds."""


class TransferArtifact(Contract):
    """Store the content that the source has; go on after what an earlier attempt has stored."""

    artifact_id: str
    source: Source


class FindProgress(Contract):
    """Ask how much of an artifact's content is stored."""

    artifact_id: str


class RemoveContent(Contract):
    """Remove everything that is stored of an artifact."""

    artifact_id: str


transfer_artifact = Effect(
    "transfer_artifact",
    TransferArtifact,
    Content,
    queue=queues.TRANSFERS,
    start_to_close_s=TRANSFER_S,
    schedule_to_close_s=7 * TRANSFER_S,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=300,
    attempts=20,
    waits_for_cancellation=True,
)
"""No late attempt may store a part after the content is removed. Attempts whose worker process was
killed count among them; the pauses of twenty are an hour together."""

find_progress = Effect("find_progress", FindProgress, Progress)

remove_content = Effect(
    "remove_content",
    RemoveContent,
    Done,
    start_to_close_s=600,
    schedule_to_close_s=3600,
    heartbeat_s=HEARTBEAT_S,
)
