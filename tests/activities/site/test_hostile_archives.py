"""An archive that a node hands over is stored whole and checked, or not at all."""

import os
import threading

import pytest
from temporalio.exceptions import ApplicationError

from activities.settings import settings
from activities.site import collection
from activities.storage import archives
from activities.storage.blobs import blob_store
from activities.storage.names import output_name, run_spec_name, states_of
from activities.storage.run_specs import RunSpec, seal_run_spec
from activities.storage.state_snapshots import StateSnapshot
from tests.activities.archives import file, packed, zeros
from tests.activities.hostile_sites import NOW, OWN, OWN_JOB, UPLOAD, HostileSite
from tests.activities.sites import REGION
from tests.activities.storage.test_archives import FILES_REFUSED, REFUSED
from tests.failure.hostile_node import Words
from workflows.contracts import errors

MIB = 1 << 20
OUTPUT = output_name(OWN_JOB, 0, 2)
BEFORE = StateSnapshot(1, NOW, "ab").name(OWN_JOB, 0)
FAILURES = {
    **dict.fromkeys(REFUSED, errors.PROTOCOL_VIOLATION),
    **dict.fromkeys({*FILES_REFUSED} - {"too-many", "backslash"}, errors.WORK_REFUSED),
}
ARCHIVES = {**REFUSED, **FILES_REFUSED}


def kept(hostile: HostileSite) -> set[str]:
    """The names of all files in the store, whole or in parts."""
    store = hostile.folder / "home" / "storage"
    found = (path for path in store.rglob("*") if path.is_file())
    return {path.relative_to(store).as_posix() for path in found}


async def refused(hostile: HostileSite, verb: str) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await hostile.do(verb)
    assert caught.value.message.isprintable()
    assert "nod-hostile" in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", sorted(FAILURES))
async def test_an_archive_that_breaks_a_rule_leaves_nothing_in_the_store(
    hostile: HostileSite, name: str
) -> None:
    hostile.is_honest()
    blob_store(settings().storage).put(BEFORE, UPLOAD)
    before = kept(hostile)
    hostile.machine.says.update(pack_output=Words(ARCHIVES[name]), pack_state=Words(ARCHIVES[name]))
    assert (await refused(hostile, "pack_output")).type == FAILURES[name]
    assert (await refused(hostile, "pack_state")).type == FAILURES[name]
    assert kept(hostile) == before


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_a_volume_that_breaks_a_rule_leaves_nothing_beside_its_content(
    hostile: HostileSite, name: str
) -> None:
    hostile.is_honest()
    hostile.activities()["pack_volume"]()  # Its run spec and its content are there.
    before = kept(hostile)
    hostile.machine.says.update(pack_volume=Words(REFUSED[name]))
    assert (await refused(hostile, "pack_volume")).type == errors.PROTOCOL_VIOLATION
    assert kept(hostile) == before


async def test_a_long_check_leaves_other_nodes_their_threads(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile.is_honest()
    names: list[str] = []
    monkeypatch.setattr(
        collection, "check_archive", lambda *_: names.append(threading.current_thread().name)
    )
    hostile.machine.says["pack_output"] = Words(packed(file("any")))
    await hostile.do("pack_output")
    assert [name.partition("_")[0] for name in names] == ["checks"]


async def test_a_sound_archive_is_stored_as_it_came_with_its_holes(hostile: HostileSite) -> None:
    hostile.is_honest()
    output = packed(zeros("hole", 5 * MIB), file("odd\\name"))
    hostile.machine.says["pack_output"] = Words(output)
    assert (await hostile.do("pack_output")).stored_bytes == len(output)
    await hostile.do("pack_state")
    store = blob_store(settings().storage)
    assert store.get(OUTPUT) == output
    [state] = store.names(states_of(OWN_JOB))
    assert store.get(state) == UPLOAD


async def test_an_output_holds_what_fits_into_the_disk_that_its_job_asked_for(
    hostile: HostileSite,
) -> None:
    said = FILES_REFUSED["too-large"]
    for disk_gb, limit in ((10, 10 * 10**9), (0, 2000 * 10**9)):
        spec = RunSpec(run_id=OWN, command="true", disk_size_gb=disk_gb)
        assert seal_run_spec(OWN_JOB, 2, 0, REGION, spec) == run_spec_name(OWN_JOB, 2, 0)
        hostile.machine.says["pack_output"] = Words(said)
        found = await refused(hostile, "pack_output")
        assert f"at most {limit} bytes" in found.message
        assert OWN in found.message


async def test_an_archive_without_an_end_is_not_read_to_its_end(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MOST_OUTPUT_FILES", 1)
    monkeypatch.setattr(collection, "MOST_DISK_GB", 0)
    monkeypatch.setattr(archives, "MAX_HEADERS_BYTES", MIB)
    hostile.machine.says["pack_output"] = Words(os.urandom(MIB), repeat=200)
    assert (await refused(hostile, "pack_output")).type == errors.PROTOCOL_VIOLATION
    assert hostile.machine.said_bytes < 32 * MIB
    assert kept(hostile) == set()
