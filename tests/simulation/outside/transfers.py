"""The transfers of artifacts from their sources. As activities/artifacts/transfers.py."""

from datetime import datetime, timedelta

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Rows, Sleep, Steps, Temporal
from tests.simulation.outside.store import Store
from workflows.contracts.artifacts import ArtifactStatus, Content
from workflows.contracts.base import Contract
from workflows.contracts.errors import STALE, TRANSFER_WAITS
from workflows.effects.artifacts import TransferArtifact
from workflows.effects.datastores import TransferFromDatastore

PARTS = 3
PARTS_S = (0.2, 2.0, 20.0, 200.0)
"""How long one part takes."""
CONTENT = Content(sha256="c" * 64, size_bytes=3072, unpacked_bytes=1000, file_count=2)


SLOTS = 1
"""How many transfers all datasets have under way at once, which are of one account."""
LEASE = timedelta(seconds=60)


class Transfers:
    """A source of three parts; what an earlier attempt has stored is not transferred again."""

    def __init__(self, temporal: Temporal, store: Store) -> None:
        self._temporal = temporal
        self._random = temporal.random
        self._store = store
        self.waited = 0
        """How often a transfer found no slot free."""
        self._seen: dict[str, datetime] = {}
        """When the attempt of each dataset's transfer was last seen."""
        self.rows: Rows | None = None

    def transfer_artifact(self, _: Attempt, command: TransferArtifact) -> Contract | Steps:
        if self._store.content(command.artifact_id) == PARTS:
            return CONTENT
        self._check(command.artifact_id)
        self._take_slot(command.artifact_id)
        return self._transfer(command.artifact_id)

    def transfer_from_datastore(
        self, _: Attempt, command: TransferFromDatastore
    ) -> Contract | Steps:
        if self._store.content(command.artifact_id) == PARTS:
            return CONTENT
        return self._transfer(command.artifact_id)

    def _transfer(self, artifact_id: str) -> Steps:
        while (parts := self._store.content(artifact_id)) < PARTS:
            yield Sleep(self._random.choice(PARTS_S))
            self._seen[artifact_id] = self._temporal.now()
            self._store.keep_content(artifact_id, parts + 1)
            self._check(artifact_id)
        self._seen.pop(artifact_id, None)
        return CONTENT

    def _take_slot(self, artifact_id: str) -> None:
        """Raises: ApplicationError `TransferWaits`, when others have all slots."""
        now = self._temporal.now()
        others = [each for each, seen in self._seen.items() if seen > now - LEASE]
        if len(set(others) - {artifact_id}) >= SLOTS:
            self.waited += 1
            raise ApplicationError(
                f"waits: at most {SLOTS} transfers", type=TRANSFER_WAITS, non_retryable=True
            )
        self._seen[artifact_id] = now

    def _check(self, artifact_id: str) -> None:
        """What is stored after the removal is removed. Raises: ApplicationError `Stale`."""
        status = "" if self.rows is None else self.rows.dataset_status(artifact_id)
        if status == ArtifactStatus.TRANSFERRING:
            return
        self._seen.pop(artifact_id, None)
        if status in (ArtifactStatus.REMOVING, ArtifactStatus.ARCHIVED):
            self._store.discard_content(artifact_id)
        raise ApplicationError(
            f"{artifact_id}: is not being transferred any more", type=STALE, non_retryable=True
        )
