"""Rows and contents of artifacts to start from."""

import io
import tarfile
from typing import Any

from activities.db.ids import new_id
from activities.db.session import Database
from activities.db.tables import Account, ArtifactRow, table_of_artifact
from activities.settings import settings
from activities.storage.blobs import BlobStore, blob_store
from activities.storage.contents import ContentReader, manifest_of
from tests.activities.rows import NOW
from workflows.contracts.artifacts import Content


def add_artifact(database: Database, account: Account, prefix: str = "dat", **changes: Any) -> str:
    """The id of an artifact that is being transferred."""
    artifact_id = new_id(prefix)
    values: dict[str, Any] = {
        "name": "cats",
        "status": "transferring",
        "source": {"type": "upload"},
        **changes,
    }
    with database.write() as session:
        session.add(
            table_of_artifact(artifact_id)(
                id=artifact_id,
                account_id=account.id,
                project_id=account.personal_project_id,
                creator_user_id="usr-1",
                creator_account_id=account.id,
                created_at=NOW,
                updated_at=NOW,
                **values,
            )
        )
    return artifact_id


def row_of(database: Database, artifact_id: str) -> ArtifactRow:
    with database.read() as session:
        return session.get_one(table_of_artifact(artifact_id), artifact_id)


def store() -> BlobStore:
    return blob_store(settings().storage)


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def stored_files(artifact_id: str, content: Content) -> dict[str, bytes]:
    """The files of a stored content, read back and checked."""
    manifest = manifest_of(store(), artifact_id, content.sha256)
    tar = ContentReader(store(), artifact_id, manifest).read()
    return files_of(tar)


def files_of(tar: bytes) -> dict[str, bytes]:
    found = {}
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                found[member.name] = file.read()
    return found
