"""The trial by which a machine says whether it can confine runs of federated jobs."""

import errno
import os
from pathlib import Path
from types import ModuleType

import pytest

from activities.agent.errors import RefusedError
from activities.agent.federated import attestation, hardening, links, opening, root, trial
from activities.agent.folders import Folders
from activities.agent.host import inspection, run_root
from tests.activities.agent.agent_process import LocalAgent

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a run")


def reason(agent: LocalAgent) -> str | None:
    found: str | None = agent.call("prepare", peers=[])["no_confinement_reason"]
    return found


@only_root
def test_a_machine_that_can_confine_runs_says_so_and_keeps_nothing_of_the_trial(
    agent: LocalAgent,
) -> None:
    assert reason(agent) is None
    before = sorted(agent.root.iterdir())
    assert reason(agent) is None
    assert sorted(agent.root.iterdir()) == before
    assert str(agent.root) not in Path("/proc/mounts").read_text()


def test_a_machine_whose_account_is_not_root_says_that_it_can_confine_none(
    agent: LocalAgent,
) -> None:
    agent.become_ordinary()
    said = reason(agent)
    assert said is not None
    assert "only root can confine" in said


@only_root
def test_a_machine_without_rights_to_namespaces_names_what_it_lacks(agent: LocalAgent) -> None:
    plain, weaker = agent.command, ["setpriv", "--bounding-set=-sys_admin"]
    agent.command = lambda verb: [*weaker, *plain(verb)]  # type: ignore[method-assign]
    assert reason(agent) == "a network namespace cannot be had: Operation not permitted"


def fails(*_: object) -> None:
    raise OSError(errno.ENODEV, "mount")


@only_root
@pytest.mark.parametrize(
    ("part", "words"),
    [
        ((links, "raise_loopback"), "a network namespace"),
        ((root, "mount_memory"), "a root in memory (tmpfs)"),
        ((run_root, "pivot"), "a root of its own (pivot_root)"),
        ((hardening, "harden"), "a filter of system calls (seccomp)"),
    ],
)
def test_each_part_of_a_confinement_is_tried_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: tuple[ModuleType, str], words: str
) -> None:
    folders = Folders(str(tmp_path))
    assert trial.why_not(folders) is None
    monkeypatch.setattr(*part, fails)
    assert trial.why_not(folders) == f"{words} cannot be had: No such device"


@only_root
def test_a_machine_with_swap_keeps_runs_off_it_or_says_that_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps = tmp_path / "swaps"
    swaps.write_text("Filename Type\n/swap file\n")
    monkeypatch.setattr(hardening, "SWAPS", str(swaps))
    monkeypatch.setattr(inspection, "runtimes", lambda: ["process"])
    monkeypatch.setattr(hardening, "_is_off_swap", lambda *_: False)
    said = trial.why_not(Folders(str(tmp_path)))
    assert said is not None
    assert "its cgroups cannot keep" in said
    monkeypatch.setattr(inspection, "runtimes", lambda: ["process", "systemd"])
    assert trial.why_not(Folders(str(tmp_path))) is None


@only_root
def test_a_machine_without_a_cipher_opens_no_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise RefusedError("no-cipher", "no libcrypto")

    monkeypatch.setattr(opening, "check_cipher", missing)
    assert trial.why_not(Folders(str(tmp_path))) == "no libcrypto"


def test_a_machine_that_offers_no_reports_says_that_it_proves_nothing(
    agent: LocalAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not Path(attestation.REPORTS).is_dir():
        said = agent.call("prepare", peers=[])["no_attestation_reason"]
        assert said == attestation.NO_REPORTS
    monkeypatch.setattr(attestation, "REPORTS", str(tmp_path))
    assert attestation.why_not() is None
