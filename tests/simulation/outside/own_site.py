"""A site with one machine of its owner, for tests."""

from typing import Any

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import Process
from tests.simulation.outside.fake_temporal import Installation
from workflows.contracts.jobs import WorkerAssignment
from workflows.contracts.nodes import NodeAddress
from workflows.effects import jobs, nodes

RUN = "job-1-0-1"
NEXT = "job-1-0-2"


class Site(Installation):
    """One own machine with two GPUs, as the node `nod-1`."""

    def __init__(self, behaviour: Behaviour = Behaviour(60.0)) -> None:  # noqa: B008 - frozen
        super().__init__()
        minion_id = self.world.add_machine(gpus=2)
        self.machine = self.world.machines.by_minion[minion_id]
        self.world.behave("job-1", behaviour)

    @property
    def node(self) -> NodeAddress:
        return NodeAddress(
            node_id="nod-1",
            region_id="reg-1",
            host=self.machine.host,
            port=22,
            minion_id=self.machine.minion_id,
        )

    def stage(self, run_id: str = RUN, **more: Any) -> Any:
        return self.do("stage_worker", self.staging(run_id, **more))

    def staging(
        self,
        run_id: str = RUN,
        *,
        gpu: int = 0,
        ephemeral: bool = False,
        idle_timeout_s: float | None = None,
        restores_state: bool = False,
    ) -> jobs.StageWorker:
        job_id, worker, attempt = run_id.rsplit("-", 2)
        self.world.keep_run_specs(job_id, int(attempt), idle_timeout_s=idle_timeout_s)
        assigned = WorkerAssignment(
            worker=int(worker), node=self.node, gpu_indices=(gpu,), ephemeral=ephemeral
        )
        return jobs.StageWorker(
            node=self.node,
            run_id=run_id,
            run_spec=f"orders/{job_id}/{attempt}/{worker}",
            assignment=assigned,
            restores_state=restores_state,
        )

    def run(self, run_id: str = RUN, **more: Any) -> None:
        self.stage(run_id, **more)
        self.do("start_worker", jobs.StartWorker(node=self.node, run_id=run_id))

    def status(self, run_id: str = RUN) -> Any:
        return self.do("get_run_status", jobs.GetRunStatus(node=self.node, run_id=run_id))

    def end(self, run_id: str = RUN, grace_s: int = 10) -> Any:
        command = jobs.EndWorker(node=self.node, run_id=run_id, grace_s=grace_s)
        return self.do("end_worker", command)

    def process(self) -> Process:
        return next(iter(self.world.processes()))

    def watch(self) -> Any:
        return self.begin("watch_node", nodes.WatchNode(node=self.node))

    def orphans(self, *, live: tuple[str, ...] = (), leaving: tuple[str, ...] = ()) -> Any:
        among = self.do("list_runs", nodes.ListRuns(node=self.node)).run_ids
        command = nodes.EndOrphanedRuns(node=self.node, among=among, live=live, leaving=leaving)
        return self.do("end_orphaned_runs", command).runs
