"""The life of a node: announced, restarted, prepared, lost, back, removed with a job on it."""

from typing import Any, ClassVar

from tests.failure.cases import Mode
from tests.failure.pairs import Pair
from tests.failure.stories.story import HARMLESS, Story
from tests.workflows.fake_world import REGION, Run
from workflows.contracts.hosts import Announcement
from workflows.contracts.jobs import run_id
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.nodes import Hardware, NodeProgress, NodeRequest
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, RunState
from workflows.effects.nodes import IdleWorkloadWanted
from workflows.nodes.node_lifecycle import NodeLifecycle

HERE = Announcement(minion_id="SHA256:key", host="10.0.0.1", port=22)
STRAY, STRAY_S = "job-gone-0-1", 5
STUCK, STUCK_S = "job-stuck-0-1", 9
GUEST = "job-here"
IN_USE = (NodeStatus.MAINTENANCE, NodeStatus.ACTIVE, NodeStatus.OFFLINE, NodeStatus.REMOVING)


class NodeStory(Story):
    """Added, restarted, prepared, active, removed; a command that nobody claims is on it."""

    lifecycle = "NodeLifecycle"
    silent: ClassVar[dict[str, str]] = {
        "watch_node": "a broken watch says little: the node is looked at, and watched anew",
    }

    restarts: ClassVar[bool] = True
    is_to_be_lost: ClassVar[bool] = False

    @property
    def workflow_id(self) -> str:
        return f"node/{self.name}"

    @property
    def status(self) -> str:
        return self.world.status_of("nod-1")

    @property
    def request(self) -> NodeRequest:
        row = self.world.rows.get("nod-1")
        return NodeRequest(
            node_id="nod-1", account_id="acc-1", region_id=REGION, name="n1",
            minion_id="SHA256:key", relaxed_requirements=("all",),
            sequence=row.sequence if row else 0,
        )  # fmt: skip

    async def begin(self) -> None:
        self.lost, self.backs = False, 0
        self.steps_taken: set[tuple[int, str]] = set()
        machine = self.world.machines["nod-1"]
        machine.hardware = Hardware(
            cpu_count=4, memory_bytes=2**33, is_root=True, reboot_required=self.restarts
        )
        self.world.put_run(STRAY, Run(RunState.RUNNING, 1, STRAY_S))
        wanted = IdleWorkloadWanted(revision="1", sealed="sealed")
        self.world.idle_workloads["nod-1"] = wanted
        self.world.consoles.add("nod-1")
        await self.start(NodeLifecycle, self.request, self.workflow_id)

    async def cancel(self) -> None:
        await self.signal(self.workflow_id, "remove", Removal(force=True))

    async def step(self) -> bool:
        if self.has_ended():
            if self.status == NodeStatus.ARCHIVED:
                return True
            await self._swept()
        row = self.world.rows.get("nod-1")
        if row is None or self._has_yet_to_ask(row.status):
            return False
        if not self._is_new(row.sequence, row.status):
            return False
        if row.status in (NodeStatus.CONNECTING, NodeStatus.FAILED):
            self.world.announcements[HERE.minion_id] = HERE
            await self.signal(self.workflow_id, "wake")
        elif row.status == NodeStatus.MAINTENANCE:
            self.world.want("nod-1", "active")
            await self.signal(self.workflow_id, "wake")
        elif row.status == NodeStatus.ACTIVE:
            await self._while_active()
        elif row.status == NodeStatus.OFFLINE:
            self._look_at_the_guest()
            self.world.machines["nod-1"].reachable = True
        return False

    def _has_yet_to_ask(self, status: str) -> bool:
        """Whether the first search for an announcement is still to come.

        The machine announces itself after it, so that a second search follows in each run.
        """
        asked = self.world.calls[Pair(self.lifecycle, "find_announcement")]
        return status == NodeStatus.CONNECTING and self.request.host is None and not asked

    def _is_new(self, sequence: int, status: str) -> bool:
        """Each step of the node's own is answered once."""
        step = (sequence, status)
        if step in self.steps_taken:
            return False
        self.steps_taken.add(step)
        return True

    async def _while_active(self) -> None:
        machine = self.world.machines["nod-1"]
        if self.is_to_be_lost and not self.lost:
            self.lost, self.backs = True, self._times_back()
            self.world.place(GUEST)
            self.world.put_run(run_id(GUEST, 0, 1), Run(RunState.RUNNING, 1, 3))
            machine.reachable = False
            machine.changed.set()
        elif (self._times_back() > self.backs or not self.is_to_be_lost) and not self.asked:
            self.asked = True
            self._look_at_the_guest()
            await self.cancel()

    def _times_back(self) -> int:
        return self.world.events["nod-1"].count("node.back")

    def _look_at_the_guest(self) -> None:
        if self.lost and GUEST in self.world.held:
            run = self.world.ever[run_id(GUEST, 0, 1)]
            self.expect(run.state is RunState.RUNNING, "a loss has ended a healthy command")

    async def _swept(self) -> None:
        """Ended from outside: the sweep starts it again from its row."""
        removal = self.status == NodeStatus.REMOVING
        request = self.request.model_copy(update=self._resumed())
        await self.start(NodeLifecycle, request, self.workflow_id)
        self.steps_taken.clear()
        self.asked = False
        if removal:
            await self.cancel()

    def _resumed(self) -> dict[str, Any]:
        """What its row says; one that was not in use goes through its onboarding again."""
        status = self.status
        if status not in IN_USE:
            return {}
        removal = status == NodeStatus.REMOVING
        events = self.world.events["nod-1"]
        turned = [e for e in events if e in ("node.active", "node.maintenance", "node.prepared")]
        resumed = NodeStatus.ACTIVE if turned[-1:] == ["node.active"] else NodeStatus.MAINTENANCE
        resumed_from = NodeProgress(
            sequence=self.request.sequence,
            status=resumed if removal else NodeStatus(status),
            resume_status=resumed,
            host="10.0.0.1", port=22, user="root", root=None,
        )  # fmt: skip
        return {"resumed_from": resumed_from}

    def look(self) -> None:
        world = self.world
        told_left = "node.runs-left" in world.events["nod-1"] or not self.asked
        self.expect(world.live_runs() == [] or told_left, f"still run: {world.live_runs()}")
        self.expect(not world.held, f"still held: {sorted(world.held)}")
        self.expect(world.machines["nod-1"].boot <= 2, "it was restarted twice")
        if self.mode in HARMLESS:
            boots = 2 if self.restarts else 1
            self.expect(world.machines["nod-1"].boot == boots, "it was not restarted as it should")
            self.expect("node.failed" not in world.events["nod-1"], "its addition has failed")
            posted = world.posted_s.get(("job-gone", 0, 1))
            self.expect(posted == STRAY_S, f"the stray has run {STRAY_S} s, posted {posted}")
        if self.lost and self.asked and self.mode is not Mode.CANCELED:
            told = list(dict.fromkeys(world.job_news[GUEST]))
            self.expect(told == ["unreachable", "reachable", "removed"], f"its job was told {told}")
        self.look_at_the_cause()


class StuckRunStory(NodeStory):
    """A run that was left to it hears no signal: it is withheld, freed by the end, and removed."""

    only = frozenset({"end_orphaned_runs", "bill_orphaned_runs"})
    restarts = False

    async def begin(self) -> None:
        self.world.put_run(STUCK, Run(RunState.RUNNING, 1, 3, is_stuck=True))
        self.world.leaving[STUCK] = "nod-1"
        await super().begin()

    async def step(self) -> bool:
        row = self.world.rows.get("nod-1")
        run = self.world.ever[STUCK]
        if row is not None and row.status == NodeStatus.MAINTENANCE and not self.has_ended():
            if run.is_stuck and STUCK in str(row.status_reason):
                self.expect(STUCK in self.world.leaving, "its GPUs were freed while it ran")
                run.is_stuck, run.elapsed_s = False, STUCK_S
                await self.signal(self.workflow_id, "refresh", Refresh())
            if not run.is_stuck:
                await self._after_its_end()
                return False
        return await super().step()

    async def _after_its_end(self) -> None:
        if STUCK not in self.world.leaving and not self.asked:
            self.asked = True
            await self.cancel()

    async def _while_active(self) -> None:
        """Its end is tried again and again."""
        if not self.world.ever[STUCK].is_stuck:
            await self._after_its_end()

    def look(self) -> None:
        super().look()
        world = self.world
        self.expect(not world.leaving, f"still held: {sorted(world.leaving)}")
        if self.mode in HARMLESS:
            self.expect("node.gpu-held" in world.events["nod-1"], "nobody is told what it holds")
            posted = world.posted_s.get(("job-stuck", 0, 1))
            self.expect(posted == STUCK_S, f"it has run {STUCK_S} s, posted {posted}")


class LossStory(NodeStory):
    """Added, lost with a job on it, back, removed: its job hears of each."""

    only = frozenset(
        {"find_node_again", "probe_node", "watch_node"}
        | {"list_runs"}  # what is left is ended when it is back
    )
    restarts = False
    is_to_be_lost = True
