"""The effects on nodes and sites, each as the activity of its name in activities/site/nodes.py."""

from collections.abc import Iterable
from datetime import timedelta

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Sleep, Steps
from tests.simulation.outside.endings import end_runs
from tests.simulation.outside.machine import Machine
from tests.simulation.outside.machines import Machines
from tests.simulation.outside.reaching import reach
from tests.simulation.outside.run_names import name_of, read_name
from tests.simulation.outside.runs import Run
from tests.simulation.outside.store import Store
from workflows.contracts import errors
from workflows.contracts.base import Contract, Done
from workflows.contracts.datastores import DatastoreWay
from workflows.contracts.nodes import (
    EarlierRun,
    IdleWorkloadFacts,
    IdleWorkloadState,
    Preparation,
    RunSeen,
)
from workflows.contracts.statuses import RunState
from workflows.effects import nodes
from workflows.effects.datastores import CheckDatastore, DatastoreChecked
from workflows.effects.regions import CacheFilled, CheckSite, FillCache, SiteChecked

ORPHAN_GRACE_S = 2.0
ORPHAN_KEPT = timedelta(hours=1)
CACHE_PORT = 8710
JOB_USER = "baseload-job"
SITE_LIMIT_S = 60.0
"""Longer than any effect waits for a site that is away."""


class NodeEffects:
    """What a node's lifecycle asks of its machine, and a region's of its site."""

    def __init__(self, machines: Machines, store: Store) -> None:
        self._machines = machines
        self._store = store
        self._random = machines.temporal.random
        self.regions: dict[str, None] = {}
        """The regions whose site was ever asked for."""
        self.shares_away: set[str] = set()
        """The datastores whose server answers nobody; the empty one stands for all."""
        self.sites_away: set[str] = set()
        """The regions whose site nobody serves at the moment."""

    def check_site(self, _: Attempt, command: CheckSite) -> Contract | Steps:
        self.regions[command.region_id] = None
        if command.region_id in self.sites_away:
            return self._no_answer()
        return SiteChecked(platform_key_fingerprint=f"SHA256:{command.region_id}")

    def fill_cache(self, _: Attempt, command: FillCache) -> Contract:
        """As region_cache.py:fill_cache: a source that is away is no failure of the node."""
        reach(self._machines, command.node)
        host = command.source.address.rpartition(":")[0]
        if not self._answers(host):
            return CacheFilled(left_files=1, reason=f"{host}: no answer")
        return CacheFilled(files=1, bytes=1)

    def check_datastore(self, _: Attempt, command: CheckDatastore) -> Contract:
        reach(self._machines, command.node)
        is_away = command.datastore_id in self.shares_away or "" in self.shares_away
        return DatastoreChecked(
            is_reachable=not is_away,
            is_writable=not is_away,
            way=DatastoreWay.USER_SPACE,
            reason="the share does not answer" if is_away else None,
        )

    def _no_answer(self) -> Steps:
        yield Sleep(SITE_LIMIT_S)
        raise ApplicationError("the site does not answer", type=errors.UNAVAILABLE)

    def reach_node(self, _: Attempt, command: nodes.ReachNode) -> Contract:
        return nodes.NodeReached(boot_id=reach(self._machines, command.node).boot_id)

    def inspect_node(self, _: Attempt, command: nodes.InspectNode) -> Contract:
        return nodes.NodeInspected(hardware=reach(self._machines, command.node).hardware())

    def prepare_node(self, _: Attempt, command: nodes.PrepareNode) -> Contract:
        machine = reach(self._machines, command.node)
        unreachable = [
            f"{peer.host}:{peer.port}" for peer in command.peers if not self._answers(peer.host)
        ]
        return nodes.NodePrepared(
            preparation=Preparation(
                job_user=JOB_USER,
                closed_logins=command.exclusive,
                unreachable_peers=tuple(unreachable),
                cache=f"{machine.host}:{CACHE_PORT}" if command.serves_cache else None,
            )
        )

    def _answers(self, host: str) -> bool:
        machine = self._machines.by_host.get(host)
        return machine is not None and machine.is_reachable

    def reboot_node(self, _: Attempt, command: nodes.RebootNode) -> Contract:
        machine = reach(self._machines, command.node)
        if machine.boot_id == command.boot_id:
            machine.later(1, lambda: machine.restart(self._random.uniform(20, 120)))
        return Done()

    def switch_idle_workload(self, _: Attempt, command: nodes.SwitchIdleWorkload) -> Contract:
        reach(self._machines, command.node)
        state = IdleWorkloadState.WAITING if command.workload.revision else IdleWorkloadState.OFF
        return nodes.IdleWorkloadSwitched(facts=IdleWorkloadFacts(state=state, run_s=60.0))

    def show_node_status(self, _: Attempt, command: nodes.ShowNodeStatus) -> Contract:
        reach(self._machines, command.node)
        return Done()

    def restore_logins(self, _: Attempt, command: nodes.RestoreLogins) -> Contract:
        try:
            machine = reach(self._machines, command.node)
        except ApplicationError as error:
            if error.type != errors.LOGIN_REFUSED:
                raise
        else:
            machine.left.add(command.node.region_id)
        return Done()

    def list_runs(self, _: Attempt, command: nodes.ListRuns) -> Contract:
        machine = reach(self._machines, command.node)
        return nodes.RunsListed(run_ids=tuple(sorted(machine.runs)))

    def end_orphaned_runs(self, _: Attempt, command: nodes.EndOrphanedRuns) -> Contract | Steps:
        machine = reach(self._machines, command.node)
        chosen = self._chosen(machine, command)
        if not chosen:
            return nodes.OrphanedRunsEnded(runs=tuple(self._removed(machine, command)))
        return self._end_orphans(machine, command, chosen)

    def _chosen(self, machine: Machine, command: nodes.EndOrphanedRuns) -> list[Run]:
        """As activities/agent/runs/clean.py:orphans; of a removed run nothing is made again."""
        node_id = command.node.node_id
        live = {name_of(run_id, node_id) for run_id in command.live}
        leaving = {name_of(run_id, node_id): run_id for run_id in command.leaving}
        among = {*command.among, *leaving} - live
        found = []
        for name in sorted(among):
            run = machine.runs.get(name)
            if run is None and name in leaving and name not in machine.removed:
                run = machine.runs[name] = Run(machine, name, leaving[name], node_id)
            if run is not None and (run.state is not RunState.UNKNOWN or name in leaving):
                found.append(run)
        return found

    def _end_orphans(
        self, machine: Machine, command: nodes.EndOrphanedRuns, chosen: list[Run]
    ) -> Steps:
        removed = self._removed(machine, command)
        with machine.connect(command.node.node_id) as connection:
            alive = yield from end_runs(connection, chosen, ORPHAN_GRACE_S)
        seen: list[RunSeen] = []
        earlier: list[EarlierRun] = []
        for run in chosen:
            if run in alive and read_name(run.name, command.node.node_id) is None:
                earlier.append(EarlierRun(name=run.name, alive=alive[run]))
            elif run in alive:
                seen += _seen(run, command.node.node_id, alive[run])
            else:
                seen += _seen(run, command.node.node_id)
                self._keep_log(run)
                self._clean_when_old(machine, run)
        return nodes.OrphanedRunsEnded(runs=(*seen, *removed), earlier_runs=tuple(earlier))

    def _removed(self, machine: Machine, command: nodes.EndOrphanedRuns) -> list[RunSeen]:
        """Runs that were left to the node, and removed from it meanwhile: they have ended."""
        node_id = command.node.node_id
        gone = [one for one in command.leaving if name_of(one, node_id) in machine.removed]
        return [
            found
            for run_id in gone
            if run_id not in command.live
            for found in _seen(Run(machine, name_of(run_id, node_id), run_id, node_id), node_id)
        ]

    def _keep_log(self, run: Run) -> None:
        if not self._store.is_away:
            self._store.extend_log(run.job_id, run.run_id, run.log_bytes)

    def _clean_when_old(self, machine: Machine, run: Run) -> None:
        """As `_reported_before_s` of the agent and `ORPHAN_KEPT`, by the machine's wall clock."""
        if run.told_at is None:
            run.told_at = machine.wall_clock()
        elif machine.wall_clock() - run.told_at >= ORPHAN_KEPT:
            machine.runs.pop(run.name, None)
            machine.removed.add(run.name)


def _seen(run: Run, node_id: str, alive: str = "") -> Iterable[RunSeen]:
    """The run of a job; nothing of a run with a foreign name, which is ended but not billed."""
    run_id = read_name(run.name, node_id)
    if run_id is None:
        return ()
    return (
        RunSeen(
            run_id=run_id,
            job_id=run.job_id,
            worker=run.worker,
            attempt=run.attempt,
            elapsed_s=run.elapsed_s,
            started_at=run.started_at,
            alive=alive,
        ),
    )
