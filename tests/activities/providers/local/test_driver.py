"""Local machines: what goes on without whoever made them, and what ends together with them."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from activities.providers.base import CapacityExhausted, RequestRefused
from activities.providers.local.driver import LocalMachines
from activities.providers.local.processes import carriers_of, descendants_of, process_of
from activities.providers.local.records import MachineFolder
from activities.secrets.region_keys import openssh, region_private_key
from tests.activities.providers.driver_contract import NAME, SPEC
from tests.activities.providers.local.test_driver_contract import OFFER, OTHER, PROVIDER
from tests.activities.waiting import wait_for
from workflows.contracts.machines import MachineObservation, MachineSpec
from workflows.contracts.statuses import MachineState

LEAVES = (
    "setsid sh -c 'setsid sleep 1000 & echo $! > {file}.part; mv {file}.part {file}' "
    "> /dev/null 2>&1 < /dev/null &"
)
"""A command that leaves a process in a session of its own, whose parents have ended."""


def driver(folder: Path, provider_id: str = PROVIDER) -> LocalMachines:
    return LocalMachines(provider_id, folder, is_trusted=lambda: True, node_here=lambda: None)


def found(folder: Path) -> MachineObservation | None:
    return driver(folder).find(NAME, OFFER.zone)


def running(folder: Path, spec: MachineSpec = SPEC) -> MachineFolder:
    """A machine that can be logged in to."""
    driver(folder).create(NAME, OFFER, spec)
    wait_for(lambda: (seen := found(folder)) and seen.is_reachable, "it can be reached")
    return MachineFolder(folder / NAME)


def left_by_a_command(machine: MachineFolder, host_folder: Path, key: Path) -> int:
    """The pid of a process that a command over SSH has left on the machine."""
    asked, file = machine.asked, host_folder / "left"
    assert asked is not None
    subprocess.run(
        [
            "ssh", "-i", str(key), "-p", str(asked.port), "-o", "StrictHostKeyChecking=no",
            "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes",
            f"{asked.user}@{asked.host}", LEAVES.format(file=file),
        ],
        check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(file.exists, "the process has begun")
    return int(file.read_text())


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """The private key of the region whose machines these are."""
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_bytes(openssh(region_private_key("reg-1")))
    return file


def test_another_worker_finds_the_machine_and_its_end_ends_all_that_was_begun(
    folder: Path, tmp_path: Path, key: Path
) -> None:
    machine = running(folder)
    pid = left_by_a_command(machine, tmp_path, key)
    assert process_of(pid) is not None
    assert [each.machine_name for each in driver(folder).list_owned()] == [NAME]
    assert driver(folder).terminate(NAME, OFFER.zone) == ""
    wait_for(lambda: found(folder) is None, "it is gone")
    assert process_of(pid) is None
    wait_for(lambda: carriers_of(machine.mark) == [], "its own process has ended")
    assert not machine.path.exists()


def test_a_killed_process_ends_nothing_and_what_it_has_left_is_found_and_ended(
    folder: Path, tmp_path: Path, key: Path
) -> None:
    machine = running(folder)
    pid = left_by_a_command(machine, tmp_path, key)
    server = machine.server
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not server.is_alive, "it is killed")
    seen = found(folder)
    assert seen is not None
    assert seen.state is MachineState.STOPPED
    assert process_of(pid) is not None
    assert [each.machine_name for each in driver(folder).list_owned()] == [NAME]
    assert "had been killed" in driver(folder).terminate(NAME, OFFER.zone)
    assert found(folder) is None
    assert process_of(pid) is None


def test_a_machine_ends_by_itself_after_its_lifetime(folder: Path) -> None:
    driver(folder).create(NAME, OFFER, SPEC.model_copy(update={"lifetime_s": 1}))
    wait_for(lambda: found(folder) is None, "it has ended")
    machine = MachineFolder(folder / NAME)
    wait_for(lambda: carriers_of(machine.mark) == [], "nothing of it is left")
    assert found(folder) is None


def test_a_process_that_never_began_is_begun_by_the_next_making(folder: Path) -> None:
    machine = running(folder)
    driver(folder).terminate(NAME, OFFER.zone)
    wait_for(lambda: found(folder) is None, "it is gone")
    asked = driver(folder)._prepare(machine, OFFER, SPEC)
    seen = found(folder)
    assert seen is not None
    assert (seen.state, seen.is_reachable) == (MachineState.MAKING, False)
    running(folder)
    assert machine.asked == asked
    assert descendants_of([machine.server.pid if machine.server else 0]) != []


def test_this_host_is_lent_once_and_others_machines_are_left_alone(folder: Path) -> None:
    running(folder)
    other = driver(folder, OTHER)
    with pytest.raises(CapacityExhausted, match=f"is lent as {NAME}"):
        other.create("baseload-lea-2", OFFER, SPEC)
    assert list(other.list_owned()) == []


def test_a_host_that_is_a_node_is_not_lent(folder: Path) -> None:
    machines = LocalMachines(PROVIDER, folder, is_trusted=lambda: True, node_here=lambda: "nod-1")
    with pytest.raises(RequestRefused, match="is node nod-1, and is not lent twice"):
        machines.create(NAME, OFFER, SPEC)


def test_a_machine_lets_in_the_key_of_its_region_alone(folder: Path, key: Path) -> None:
    with pytest.raises(RequestRefused, match="name no region"):
        driver(folder).create(NAME, OFFER, SPEC.model_copy(update={"tags": {}}))
    machine = running(folder)
    lines = (machine.sshd / "authorized_keys").read_text().splitlines()
    public = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(key)], check=True, capture_output=True, text=True
    ).stdout
    assert [line.split()[:2] for line in lines] == [public.split()[:2]]
