"""Run specs between releases: a worker that does not know what a run requires refuses it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from activities.secrets.sealing import make_master_key, site_box
from activities.settings import settings
from activities.storage import run_specs
from activities.storage.blobs import blob_store
from activities.storage.datastore_access import DatastoreAccess, RegionalData
from activities.storage.run_specs import RunSpec, RunSpecTooNewError, open_run_spec, seal_run_spec
from workflows.contracts.base import Contract
from workflows.contracts.datastores import DatastoreType

JOB, REGION = "job-1", "reg-1"
LAB = DatastoreAccess(id="dst-1", name="lab", type=DatastoreType.NFS, host="nas", root_path="/srv")
PLAIN = RunSpec(run_id="job-sealed-0-1", command="true", code_sha256="ab", port=8888)
WITH_DATA = PLAIN.model_copy(
    update={"datastores": {"input": RegionalData(datastore=LAB, path="sets")}}
)


class EarlierRunSpec(Contract):
    """A run spec as a worker knows it that has never heard of datastores."""

    run_id: str
    command: str
    code_sha256: str | None = None


@pytest.fixture(autouse=True)
def keyed(home: Path) -> None:
    make_master_key(settings().master_key_path)
    blob_store.cache_clear()


def sealed(spec: RunSpec) -> str:
    return seal_run_spec(JOB, 1, 0, REGION, spec)


def read_by_earlier_worker(name: str) -> EarlierRunSpec:
    content = site_box(REGION).open(blob_store(settings().storage).get(name), name.encode())
    return EarlierRunSpec.model_validate_json(content)


@pytest.mark.parametrize("spec", [PLAIN, WITH_DATA], ids=["plain", "with data"])
def test_a_run_spec_is_opened_as_it_was_sealed(spec: RunSpec) -> None:
    assert open_run_spec(sealed(spec), REGION) == spec


def test_an_earlier_worker_runs_what_it_knows_and_nothing_without_its_data() -> None:
    assert read_by_earlier_worker(sealed(PLAIN)).command == "true"
    with pytest.raises(ValidationError):
        read_by_earlier_worker(sealed(WITH_DATA))


def test_a_worker_refuses_what_a_later_release_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_specs, "required_by", lambda _: ["datastores", "wings"])
    with pytest.raises(RunSpecTooNewError, match="requires wings, which"):
        open_run_spec(sealed(WITH_DATA), REGION)


def test_what_is_not_the_default_is_required_unless_every_worker_knows_it() -> None:
    assert run_specs.required_by(PLAIN) == []
    assert run_specs.required_by(WITH_DATA) == ["datastores"]
    assert set(RunSpec.model_fields) >= run_specs.NOT_REQUIRED
