"""How much a volume may have that a run writes to."""

import pytest

from activities.db.session import Database
from activities.db.tables import Account, Project
from activities.settings import settings
from activities.storage.run_specs import open_run_spec
from tests.activities.artifacts.artifact_rows import add_artifact
from tests.activities.jobs.test_run_specs import project, seal, submit

__all__ = ["project"]


@pytest.mark.parametrize(("quota", "most_bytes"), [(0, 500), (1700, 1700)])
def test_a_volume_may_have_what_its_account_has_room_for_and_never_less_than_it_has(
    migrated: Database,
    project: str,
    monkeypatch: pytest.MonkeyPatch,
    quota: int,
    most_bytes: int,
) -> None:
    with migrated.read() as session:
        account = session.get_one(Account, session.get_one(Project, project).account_id)
    sizes = {"size_bytes": 500, "unpacked_bytes": 400, "file_count": 1}
    volume_id = add_artifact(
        migrated, account, "vol", status="ready", content_sha256="cc" * 32, **sizes
    )
    submit(migrated, project, data={"volumes": [{"id": volume_id, "access": "write"}]})
    # Two uploads of a byte each are stored beside it.
    monkeypatch.setenv("BASELOAD_ACCOUNT_STORED_MAX_BYTES", str(quota and quota + 2))
    settings.cache_clear()
    (content,) = open_run_spec(seal().references[0], "reg-1").contents
    assert content.most_bytes == most_bytes
