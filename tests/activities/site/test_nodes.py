"""What a node's lifecycle asks of its machine, over a real connection."""

import asyncio
import json
import os
import socket
import threading
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import asyncssh
import pytest
from temporalio.exceptions import ApplicationError

from activities.secrets.platform_key import platform_public_key
from activities.secrets.region_keys import (
    openssh,
    region_key_line,
    region_private_key,
    region_public_key,
)
from activities.settings import settings
from activities.site.answers.verbs import Prepared
from activities.site.node_client import NodeClient, close_connections
from activities.site.nodes import (
    check_site,
    end_orphaned_runs,
    inspect_node,
    list_runs,
    prepare_node,
    reach_node,
    reboot_node,
    restore_logins,
)
from tests.activities.agent.agent_process import processes_of
from tests.activities.sites import REGION, Site
from tests.activities.sshd import Sshd
from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.effects.nodes import (
    EndOrphanedRuns,
    InspectNode,
    ListRuns,
    PrepareNode,
    ReachNode,
    RebootNode,
    RestoreLogins,
)
from workflows.effects.regions import CheckSite

STRAY, KEPT = "job-left-0-1", "job-kept-1-2"


def sshd_configuration() -> dict[Path, bytes]:
    """This machine's own."""
    found = Path("/etc/ssh").rglob("*sshd_config*")
    return {path: path.read_bytes() for path in found if path.is_file()}


def pinned_connection(
    site: Site, key: asyncssh.SSHKey
) -> AbstractAsyncContextManager[asyncssh.SSHClientConnection]:
    """A connection of another client with the same key."""
    return asyncssh.connect(
        site.node.host, site.node.port, username=site.node.user, client_keys=[key],
        known_hosts=None, config=None, agent_path=None,
    )  # fmt: skip


async def refused(site: Site) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        await site.do(reach_node, ReachNode(node=site.node))
    return caught.value


async def printed_fingerprint(path: Path) -> str:
    """What ssh-keygen says of a public key."""
    done = await asyncio.create_subprocess_exec(
        "ssh-keygen", "-l", "-f", str(path), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await done.communicate()
    return printed.decode().split()[1]


async def test_a_site_with_its_regions_key_says_which(site: Site, tmp_path: Path) -> None:
    found = await site.do(check_site, CheckSite(region_id=REGION))
    (tmp_path / "region.pub").write_text(region_public_key(REGION))
    assert found.platform_key_fingerprint == await printed_fingerprint(tmp_path / "region.pub")


async def test_a_site_without_a_key_says_where_it_looked(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BASELOAD_SECRETS_KEY")
    monkeypatch.setenv("BASELOAD_HOME", str(tmp_path / "nothing"))
    settings.cache_clear()
    with pytest.raises(ApplicationError) as caught:
        await site.do(check_site, CheckSite(region_id=REGION))
    assert caught.value.type == errors.REFUSED
    assert str(tmp_path / "nothing") in str(caught.value)


async def test_another_region_cannot_enter_the_machine(site: Site) -> None:
    await site.do(reach_node, ReachNode(node=site.node))  # Its connection stays open.
    site.node = site.node.model_copy(update={"region_id": "reg-stranger"})
    assert (await refused(site)).type == errors.LOGIN_REFUSED


async def test_the_key_of_a_region_allows_commands_and_files_alone(site: Site) -> None:
    key = asyncssh.import_private_key(openssh(region_private_key(REGION)))
    async with pinned_connection(site, key) as connection:
        assert (await connection.run("echo in")).stdout == "in\n"
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_connection("127.0.0.1", site.node.port)
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.run("tty", term_type="xterm", check=True)


async def test_a_node_is_reached_again_and_again_in_the_same_boot(site: Site) -> None:
    first = await site.do(reach_node, ReachNode(node=site.node))
    assert first.boot_id
    assert await site.do(reach_node, ReachNode(node=site.node)) == first


async def test_a_machine_that_has_not_joined_the_region_is_refused_and_not_changed(
    site: Site,
) -> None:
    foreign = site.node.model_copy(update={"region_id": "reg-stranger"})
    (site.sshd.folder / "authorized_keys").write_text(region_key_line("reg-stranger"))
    before = sorted(path.name for path in site.agent.root.iterdir())
    commands = (
        (reach_node, ReachNode(node=foreign)),
        (inspect_node, InspectNode(node=foreign)),
        (prepare_node, PrepareNode(node=foreign, exclusive=False)),
    )
    for activity, command in commands:
        with pytest.raises(ApplicationError) as caught:
            await site.do(activity, command)  # type: ignore[arg-type]
        assert caught.value.type == errors.NODE_REFUSED
        assert "join.sh" in str(caught.value)
        assert REGION not in str(caught.value)
    assert set(site.agent.root.iterdir()) - {site.agent.root / name for name in before} <= {
        site.agent.root / "agent"
    }


async def test_a_join_file_that_others_can_write_says_nothing(site: Site) -> None:
    (site.agent.root / "join").chmod(0o666)
    assert (await refused(site)).type == errors.NODE_REFUSED


async def test_a_machine_that_the_platform_has_created_needs_no_join_file(site: Site) -> None:
    (site.agent.root / "join").unlink()
    leased = site.node.model_copy(update={"leased": True})
    assert (await site.do(reach_node, ReachNode(node=leased))).boot_id


async def test_another_host_key_is_never_told(site: Site, tmp_path: Path) -> None:
    expected = Sshd(tmp_path / "other").fingerprint()
    site.node = site.node.model_copy(update={"minion_id": expected})
    found = await refused(site)
    assert found.type == errors.HOST_KEY_MISMATCH
    there = f"{site.node.host}:{site.node.port}"
    answers = f"no machine with the host key {expected} answers there"
    assert found.message == f"nod-1: node {there}: cannot be reached: {answers}"
    assert site.sshd.fingerprint() not in f"{found} {found.details} {found.__cause__}"


def hang_up(server: socket.socket) -> None:
    """Accept one connection, and say nothing."""
    server.accept()[0].close()


async def test_what_is_at_a_strangers_address_cannot_be_told_from_the_words(
    site: Site,
) -> None:
    """Closed, open without SSH, and refused by the rules."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        threading.Thread(target=hang_up, args=(mute,), daemon=True).start()
        words = set()
        for host, port in (
            ("127.0.0.1", 1),
            ("127.0.0.1", mute.getsockname()[1]),
            ("127.0.0.2", site.node.port),
            ("169.254.169.254", 80),
        ):
            site.node = site.node.model_copy(update={"host": host, "port": port})
            found = await refused(site)
            assert found.type == errors.NODE_UNREACHABLE
            words.add(found.message.replace(f"{host}:{port}", "x"))
    key = site.node.minion_id
    answers = f"no machine with the host key {key} answers there"
    assert words == {f"nod-1: node x: cannot be reached: {answers}"}


async def test_no_failure_forbids_another_try_by_itself(site: Site, tmp_path: Path) -> None:
    """Else a node whose key is set right would never be found again."""
    expected = Sshd(tmp_path / "other").fingerprint()
    site.node = site.node.model_copy(update={"minion_id": expected})
    assert not (await refused(site)).non_retryable


async def test_a_node_that_does_not_know_the_platforms_key_is_login_refused(site: Site) -> None:
    (site.sshd.folder / "authorized_keys").write_text("")
    assert (await refused(site)).type == errors.LOGIN_REFUSED


async def test_a_node_where_nothing_listens_is_unreachable_and_is_named(site: Site) -> None:
    site.sshd.stop()
    found = await refused(site)
    assert found.type == errors.NODE_UNREACHABLE
    assert "nod-1" in str(found)
    assert str(site.node.port) in str(found)


async def test_a_machine_that_cannot_hold_the_agent_is_refused_with_its_own_words(
    site: Site,
) -> None:
    site.node = site.node.model_copy(update={"root": "/proc/no-room"})
    found = await refused(site)
    assert found.type == errors.NODE_REFUSED
    assert "/proc/no-room" in str(found)


async def test_a_connection_that_was_dropped_is_made_anew(site: Site) -> None:
    await site.do(reach_node, ReachNode(node=site.node))
    site.sshd.cut()
    for _ in range(2):
        try:
            await site.do(reach_node, ReachNode(node=site.node))
        except ApplicationError as error:
            assert error.type in errors.LOSSES  # noqa: PT017 - the second try settles it
        else:
            return
    pytest.fail("the node was not reached again")


async def test_inspection_finds_this_machine(site: Site) -> None:
    found = (await site.do(inspect_node, InspectNode(node=site.node))).hardware
    assert found.cpu_count == os.cpu_count()
    assert found.memory_bytes > 0
    assert "process" in found.runtimes
    assert found.is_root is (os.geteuid() == 0)
    assert found.boot_id == (await site.do(reach_node, ReachNode(node=site.node))).boot_id


async def test_preparing_twice_changes_nothing_and_leaves_other_logins_alone(site: Site) -> None:
    nobody = site.node.model_copy(update={"port": 1})
    command = PrepareNode(node=site.node, exclusive=False, peers=(site.node, nobody))
    first = await site.do(prepare_node, command)
    assert await site.do(prepare_node, command) == first
    found = first.preparation
    assert found.unreachable_peers == ("127.0.0.1:1",)
    assert found.closed_logins is False
    assert (found.job_user is None) == (found.trusted_only_reason is not None)
    assert found.job_user == ("baseload-job" if os.geteuid() == 0 else None)


async def test_a_machine_whose_logins_were_never_closed_is_released_as_it_is(site: Site) -> None:
    before = sshd_configuration()
    for _ in range(2):
        assert await site.do(restore_logins, RestoreLogins(node=site.node)) == Done()
    assert sshd_configuration() == before


async def test_all_calls_to_a_machine_share_one_connection(site: Site) -> None:
    for _ in range(3):
        await site.do(reach_node, ReachNode(node=site.node))
    assert len(site.sshd.sessions()) == 1


async def test_a_removed_machine_cannot_be_entered_again(site: Site) -> None:
    keys, joined = site.sshd.folder / "authorized_keys", site.agent.root / "join"
    owners, another = (
        "ssh-ed25519 AAAAC3Nz owner\n",
        "http://other:8700 reg-other join_reg-other_x k\n",
    )
    keys.write_text(owners + keys.read_text().rstrip("\n"))
    keys.chmod(0o640)
    joined.write_text(another + joined.read_text())
    for _ in range(2):  # The second one logs in anew.
        assert await site.do(restore_logins, RestoreLogins(node=site.node)) == Done()
        await close_connections()
    assert keys.read_text() == owners
    assert keys.stat().st_mode & 0o777 == 0o640
    assert joined.read_text() == another
    assert (await refused(site)).type == errors.LOGIN_REFUSED


async def test_where_no_job_user_can_be_made_it_is_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: object, **__: object) -> Prepared:
        return Prepared(job_user=None, closed_logins=False, unreachable_peers=())

    monkeypatch.setattr(NodeClient, "call", call)
    found = await site.do(prepare_node, PrepareNode(node=site.node, exclusive=False))
    assert found.preparation.trusted_only_reason is not None
    assert "not root" in found.preparation.trusted_only_reason


async def test_a_machine_that_cannot_keep_gpus_apart_is_trusted_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call(*_: object, **__: object) -> Prepared:
        reason = "its GPUs have one device"
        return Prepared(
            job_user="baseload-job",
            closed_logins=False,
            unreachable_peers=(),
            open_gpus_reason=reason,
            no_run_root_reason="overlay: no such device",
            no_confinement_reason="no tmpfs",
            no_attestation_reason="is no SEV-SNP",
        )

    monkeypatch.setattr(NodeClient, "call", call)
    found = await site.do(prepare_node, PrepareNode(node=site.node, exclusive=False))
    assert found.preparation.trusted_only_reason == "its GPUs have one device"
    assert found.preparation.no_run_root_reason == "overlay: no such device"
    assert found.preparation.no_confinement_reason == "no tmpfs"
    assert found.preparation.no_attestation_reason == "is no SEV-SNP"


async def test_a_machine_that_has_restarted_since_is_not_restarted(site: Site) -> None:
    assert await site.do(reboot_node, RebootNode(node=site.node, boot_id="earlier")) == Done()


async def test_strays_are_ended_their_logs_kept_and_what_is_live_goes_on(site: Site) -> None:
    site.agent.run(STRAY, "echo its log; sleep 600")
    site.agent.run(KEPT, "sleep 600")
    await asyncio.to_thread(site.agent.look, STRAY)
    command = EndOrphanedRuns(node=site.node, among=site.names(STRAY, KEPT), live=(KEPT,))
    found = await site.do(end_orphaned_runs, command)
    [seen] = found.runs
    assert (seen.run_id, seen.job_id, seen.worker, seen.attempt) == (STRAY, "job-left", 0, 1)
    assert seen.elapsed_s > 0
    assert seen.started_at is not None
    assert processes_of(STRAY) == []
    assert processes_of(KEPT)
    assert site.logs.read(STRAY, 0) == site.agent.path(STRAY, "log").read_bytes()


async def test_every_run_on_the_node_is_listed(site: Site) -> None:
    site.agent.run(STRAY, "true")
    listed = await site.do(list_runs, ListRuns(node=site.node))
    assert listed.run_ids == site.names(STRAY)


async def test_a_stray_whose_answer_was_lost_is_told_again(site: Site) -> None:
    site.agent.run(STRAY, "sleep 600")
    command = EndOrphanedRuns(node=site.node, among=site.names(STRAY, "somebody"), live=())
    assert await site.do(end_orphaned_runs, command) == await site.do(end_orphaned_runs, command)


async def test_strays_that_were_told_long_ago_are_told_once_more_and_removed(site: Site) -> None:
    site.agent.run(STRAY, "true")
    command = EndOrphanedRuns(node=site.node, among=site.names(STRAY), live=())
    first = await site.do(end_orphaned_runs, command)
    os.utime(site.agent.path(STRAY, "told"), (0, 0))
    assert await site.do(end_orphaned_runs, command) == first
    assert not site.agent.path(STRAY).exists()


async def test_a_stray_that_ended_long_before_anybody_saw_it_is_told(site: Site) -> None:
    """Its node was away for hours after it had ended, or the node's clock is an hour behind."""
    site.agent.run(STRAY, "echo its log")
    site.agent.exit_of(STRAY)
    exit_path = site.agent.path(STRAY, "exit.json")
    told = json.loads(exit_path.read_text()) | {"finished_at": "2020-01-01T00:00:00+00:00"}
    exit_path.write_text(json.dumps(told))
    ended = await site.do(
        end_orphaned_runs, EndOrphanedRuns(node=site.node, among=site.names(STRAY), live=())
    )
    [seen] = ended.runs
    assert seen.elapsed_s == told["elapsed_s"]
    assert site.logs.read(STRAY, 0) == b"its log\n"


async def test_code_that_no_job_has_used_for_weeks_makes_room(site: Site) -> None:
    folders = [site.agent.root / "code" / (digit * 64) for digit in "ab"]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (0, 0))
    await site.do(
        end_orphaned_runs,
        EndOrphanedRuns(node=site.node, among=site.names(STRAY, "somebody"), live=()),
    )
    assert [folder.exists() for folder in folders] == [False, True]


async def test_a_run_that_nobody_named_is_ended_and_not_told(site: Site) -> None:
    site.agent.run("somebody", "sleep 600")
    assert (
        await site.do(
            end_orphaned_runs,
            EndOrphanedRuns(node=site.node, among=site.names(STRAY, "somebody"), live=()),
        )
    ).runs == ()
    assert processes_of("somebody") == []


async def test_the_public_key_is_what_ssh_keygen_prints(site: Site) -> None:
    printed = site.sshd.client_key.with_suffix(".pub").read_text().split()[:2]
    assert platform_public_key().split()[:2] == printed
