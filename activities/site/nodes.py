"""The activities by which a node's lifecycle uses its machine."""

import asyncio
import contextlib
from collections.abc import Generator, Mapping
from datetime import timedelta
from ipaddress import ip_address
from socket import SOCK_STREAM
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.secrets.cache_certificates import cache_token, server_identity
from activities.secrets.login_keys import key_line_of
from activities.secrets.platform_key import platform_key_fingerprint
from activities.secrets.region_keys import region_key_fingerprint
from activities.secrets.sealing import MasterKeyError, SealBrokenError
from activities.settings import settings
from activities.site.answers.verbs import (
    CacheHost,
    Cleaned,
    EndedRun,
    IdleWorkloadReport,
    Inspection,
    LivingRun,
    Nothing,
    Orphans,
    Prepared,
    RunStatus,
    Status,
)
from activities.site.collection import bring_log
from activities.site.node_client import NodeClient
from activities.site.region_cache import mirrored_registries
from activities.site.run_names import RunNames
from activities.storage.idle_workload import open_idle_workload
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.contracts.jobs import parse_run_id
from workflows.contracts.nodes import (
    EarlierRun,
    IdleWorkloadFacts,
    NodeAddress,
    Preparation,
    RunSeen,
)
from workflows.effects.nodes import (
    EndOrphanedRuns,
    IdleWorkloadSwitched,
    InspectNode,
    ListRuns,
    NodeInspected,
    NodePrepared,
    NodeReached,
    OrphanedRunsEnded,
    PrepareNode,
    ReachNode,
    RebootNode,
    RestoreLogins,
    RunsListed,
    ShowNodeStatus,
    SwitchIdleWorkload,
)
from workflows.effects.regions import CheckSite, SiteChecked

ORPHAN_GRACE_S = 2
ORPHAN_LOG_S = 20.0
ORPHAN_KEPT = timedelta(hours=1)
CACHE_KEPT = timedelta(days=14)
MOST_EARLIER_RUNS = 16
"""How many runs of earlier nodes are told at most; one is enough to keep jobs away."""


@activity.defn
async def check_site(command: CheckSite) -> SiteChecked:
    """Prove that a worker process serves the region's queue and has the region's key.

    Raises: ApplicationError, REFUSED when the worker process has no key for the region's nodes.
    """
    try:
        fingerprint = await asyncio.to_thread(region_key_fingerprint, command.region_id)
    except MasterKeyError as error:
        raise ApplicationError(
            f"region {command.region_id}: the worker of its site has no key for nodes: {error}",
            type=errors.REFUSED,
        ) from error
    return SiteChecked(platform_key_fingerprint=fingerprint)


@activity.defn
async def reach_node(command: ReachNode) -> NodeReached:
    """Prove that the node answers with its own host key, and that it has joined its region.

    Installs the agent if it is missing.
    Raises: NODE_REFUSED when the machine cannot run the agent, or has not joined the region; all
    failures of `NodeClient`.
    """
    request = {"run_ids": [], **_joined(command.node)}
    answer = await NodeClient(command.node).call(
        "status", request, Status, limit_s=18, broken=errors.NODE_REFUSED
    )
    return NodeReached(boot_id=answer.boot_id)


@activity.defn
async def inspect_node(command: InspectNode) -> NodeInspected:
    """Read the machine's hardware, as its own kernel and drivers report it."""
    request = {**_joined(command.node), "tries_speeds": command.tries_speeds}
    async with heartbeating():
        answer = await NodeClient(command.node).call("inspect", request, Inspection, limit_s=55)
    return NodeInspected(hardware=answer.found())


@activity.defn
async def prepare_node(command: PrepareNode) -> NodePrepared:
    """Prepare the folders, the job user, the logins and the cache, and check the peers.

    A repeat changes nothing.
    """
    request = {
        **_joined(command.node),
        "node_id": command.node.node_id,
        "exclusive": command.exclusive,
        "authorized_key": await asyncio.to_thread(key_line_of, command.node),
        "peers": [[peer.host, peer.port] for peer in command.peers],
        "cache": await _cache(command.node) if command.serves_cache else None,
        "network_wall": await _network_wall(command.node),
    }
    async with heartbeating():
        answer = await NodeClient(command.node).call("prepare", request, Prepared, limit_s=240)
    asked = {f"{peer.host}:{peer.port}" for peer in command.peers}
    alone = None if answer.job_user else "the login user is not root: jobs share its account"
    open_network = answer.no_wall_reason
    if not settings().job_network_wall:
        open_network = "BASELOAD_JOB_NETWORK_WALL is off: jobs reach this machine's network"
    return NodePrepared(
        preparation=Preparation(
            job_user=answer.job_user,
            closed_logins=answer.closed_logins,
            unreachable_peers=tuple(peer for peer in answer.unreachable_peers if peer in asked),
            cache=answer.cache.address if answer.cache else None,
            cache_is_secure=bool(answer.cache and answer.cache.is_secure),
            no_cache_reason=answer.cache.reason if answer.cache else None,
            trusted_only_reason=alone or open_network or answer.open_gpus_reason,
            no_run_root_reason=answer.no_run_root_reason,
            no_confinement_reason=answer.no_confinement_reason,
            no_attestation_reason=answer.no_attestation_reason,
            has_console=answer.has_console,
            nfs_way=answer.nfs_way,
            smb_way=answer.smb_way,
        )
    )


def _joined(node: NodeAddress) -> dict[str, str]:
    """The region in a request, which the agent refuses unless the machine has joined the region."""
    return {} if node.leased else {"region_id": node.region_id}


async def _cache(node: NodeAddress) -> dict[str, Any]:
    """How the node serves its region's cache: with a certificate for its own address there."""
    found = await NodeClient(node).call("find_cache_address", {}, CacheHost, limit_s=12)
    asked: dict[str, Any] = {
        "port": settings().region_cache_port,
        "max_bytes": settings().region_cache_max_bytes,
        "index_url": settings().package_index_url,
        "registries": mirrored_registries(),
    }
    if found.host is not None:  # Else the agent says why it serves none.
        region_id, identity = node.region_id, (node.region_id, node.node_id, found.host)
        with contextlib.suppress(ValueError):
            asked |= {
                "identity": await asyncio.to_thread(server_identity, *identity),
                "token": await asyncio.to_thread(cache_token, region_id),
            }
    return asked


async def _network_wall(node: NodeAddress) -> dict[str, Any] | None:
    """What is closed to jobs beside their own machine: networks of the setting, and Temporal, of
    whose address strangers need not know."""
    if not settings().job_network_wall:
        return None
    if node.has_own_key:
        return {"networks": list(settings().job_closed_networks), "ports": []}
    host, _, port = settings().temporal_address.rpartition(":")
    ports: list[list[Any]] = []
    with contextlib.suppress(OSError, ValueError):  # A name that does not resolve here.
        loop = asyncio.get_running_loop()
        for *_, place in await loop.getaddrinfo(host.strip("[]"), int(port), type=SOCK_STREAM):
            if not ip_address(str(place[0]).partition("%")[0]).is_loopback:
                ports.append([place[0], int(port)])
    return {"networks": list(settings().job_closed_networks), "ports": ports}


@activity.defn
async def reboot_node(command: RebootNode) -> Done:
    """Restart the machine, unless it has restarted since the boot `command.boot_id`."""
    answer = await NodeClient(command.node).call("status", {"run_ids": []}, Status, limit_s=12)
    if answer.boot_id == command.boot_id:
        await NodeClient(command.node).call("reboot", {}, Nothing, limit_s=12)
    return Done()


@activity.defn
async def list_runs(command: ListRuns) -> RunsListed:
    """Every run on the node, in any state."""
    answer = await NodeClient(command.node).call("status", {"run_ids": None}, Status, limit_s=18)
    return RunsListed(run_ids=tuple(sorted(answer.runs)))


@activity.defn
async def end_orphaned_runs(command: EndOrphanedRuns) -> OrphanedRunsEnded:
    """End the orphaned runs, and store the logs of those that have ended.

    A run's folder is removed only in a later answer, at least an hour after the first one that
    reported the run: an answer may be lost, and the retry must still find what is to be billed.
    The end of the run is no measure, because its node may have been unreachable since, and the
    node's clock may be wrong.

    Runs that earlier nodes of the machine have left are ended as well. Those that could not be are
    told apart, since their names prove nothing of their jobs. The runs of another control plane
    are not touched, nor told.
    """
    names = RunNames(command.node)
    async with heartbeating():
        request = {
            "live": [names.of(run_id) for run_id in command.live],
            "among": list(command.among),
            "leaving": [names.of(run_id) for run_id in command.leaving],
            "grace_s": ORPHAN_GRACE_S,
            "owner": platform_key_fingerprint(),
        }
        answer = await NodeClient(command.node).call("orphans", request, Orphans, limit_s=90)
        await _prune(command.node)
        asked = _asked(names, command)
        ended = {name: run for name, run in answer.ended.items() if name in asked}
        alive = {name: run for name, run in answer.alive.items() if name in asked}
        runs = _runs(names, ended)
        for run in runs:
            # A run has ended even if its log cannot be stored in time.
            with _tolerated():
                async with asyncio.timeout(ORPHAN_LOG_S):
                    await bring_log(command.node, run.run_id)
        old = [name for name, run in ended.items() if _is_old(run)]
        if old:
            # The next call reports again the folders that stay; this call's runs must be billed.
            with _tolerated():
                await NodeClient(command.node).call("clean", {"run_ids": old}, Cleaned, limit_s=60)
    return OrphanedRunsEnded(
        runs=(*runs, *_runs(names, alive)),
        earlier_runs=_earlier_runs(names, alive),
        cache_full=answer.cache_full,
    )


def _asked(names: RunNames, command: EndOrphanedRuns) -> set[str]:
    """The names of the runs that the node was asked to end; it says nothing of any other."""
    leaving = {names.of(run_id) for run_id in command.leaving}
    return {*command.among, *leaving} - {names.of(run_id) for run_id in command.live}


@contextlib.contextmanager
def _tolerated() -> Generator[None]:
    """Ignore a failure, but for that of a node that breaks the protocol."""
    try:
        yield
    except (TimeoutError, OSError):
        return
    except ApplicationError as failure:
        if failure.type == errors.PROTOCOL_VIOLATION:
            raise


async def _prune(node: NodeAddress) -> None:
    """Remove code and packages that no job has used for `CACHE_KEPT`; ignore failures."""
    request = {"keep_code": [], "max_age_s": CACHE_KEPT.total_seconds()}
    with _tolerated():
        await NodeClient(node).call("prune", request, Nothing, limit_s=20)


def _is_old(run: EndedRun) -> bool:
    return run.told_before_s >= ORPHAN_KEPT.total_seconds()


def _runs(names: RunNames, said: Mapping[str, RunStatus]) -> tuple[RunSeen, ...]:
    found = (_run(names.read(name), run) for name, run in said.items())
    return tuple(run for run in found if run is not None)


def _earlier_runs(names: RunNames, alive: Mapping[str, LivingRun]) -> tuple[EarlierRun, ...]:
    """The living runs with foreign names: whoever named them, they may use the node's GPUs."""
    foreign = [name for name in sorted(alive) if names.read(name) is None]
    return tuple(
        EarlierRun(name=name, alive=alive[name].why) for name in foreign[:MOST_EARLIER_RUNS]
    )


def _run(run_id: str | None, said: RunStatus) -> RunSeen | None:
    """The run of a job; None for a run with a foreign name, which is ended but not billed."""
    if run_id is None:
        return None
    job_id, worker, attempt = parse_run_id(run_id)
    return RunSeen(
        run_id=run_id,
        job_id=job_id,
        worker=worker,
        attempt=attempt,
        elapsed_s=said.elapsed_s,
        started_at=said.started_at,
        finished_at=said.exit and said.exit.finished_at,
        alive=said.why if isinstance(said, LivingRun) else "",
    )


@activity.defn
async def switch_idle_workload(command: SwitchIdleWorkload) -> IdleWorkloadSwitched:
    """Switch the idle workload of the node on, to another one, or off; a repeat changes nothing.

    Raises: ApplicationError, REFUSED when the worker process cannot open it; as `NodeClient`.
    """
    node, wanted = command.node, command.workload
    workload: dict[str, Any] | None = None
    if wanted.sealed:
        try:
            opened = await asyncio.to_thread(
                open_idle_workload, wanted.sealed, node.region_id, node.node_id
            )
        except (SealBrokenError, MasterKeyError) as error:
            raise ApplicationError(
                f"{node.node_id}: the worker of region {node.region_id} cannot open its idle "
                f"workload: {error}",
                type=errors.REFUSED,
            ) from error
        most_tasks = settings().job_most_tasks
        named = {"revision": wanted.revision, "node_id": node.node_id, "most_tasks": most_tasks}
        workload = {**named, **opened.model_dump()}
    answer = await NodeClient(node).call(
        "switch_idle_workload", {"workload": workload}, IdleWorkloadReport, limit_s=27
    )
    return IdleWorkloadSwitched(facts=IdleWorkloadFacts(**answer.model_dump()))


@activity.defn
async def show_node_status(command: ShowNodeStatus) -> Done:
    """Show the node's status on the console of its machine; a repeat changes nothing."""
    request = {"node_id": command.node.node_id, "status": command.status}
    await NodeClient(command.node).call("show_status", request, Nothing, limit_s=18)
    return Done()


@activity.defn
async def restore_logins(command: RestoreLogins) -> Done:
    """Restore the logins as they were before the machine joined; a repeat changes nothing.

    A machine that does not accept the platform's key any more has been left by an earlier attempt.
    """
    request = {
        "leaves": command.node.region_id,
        "authorized_key": await asyncio.to_thread(key_line_of, command.node),
    }
    try:
        await NodeClient(command.node).call("release", request, Nothing, limit_s=25)
    except ApplicationError as error:
        if error.type != errors.LOGIN_REFUSED:
            raise
    return Done()
