"""The driver of RunPod's pods, by its REST API, version 2.

RunPod has neither labels nor a key by which a repeated creation finds the first one, and names are
not unique. So a pod is looked for by its name, which has the provider's id, before one is created
and after every unclear answer. A second pod of one name, which a late request has made, is deleted
when it is seen; of two, one that runs is kept.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from activities.providers.deletions import Delete, unkept
from activities.providers.image_machines import marketplace_name, own_machine_name
from activities.providers.runpod.pods import RUNNING, TERMINATED, pod_body, shown
from activities.providers.runpod.session import RunPodSession, runpod_session
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

GONE = MachineObservation(state=MachineState.GONE)


@dataclass(frozen=True)
class OwnedPod:
    """The `OwnedMachine` of one pod."""

    machine_name: str
    pod: Mapping[str, Any]

    @property
    def zone(self) -> str:
        return self.seen.zone

    @property
    def seen(self) -> MachineObservation:
        return shown(self.pod, self.machine_name).model_copy(update={"minion_id": None})


class RunPodMachines:
    """The `Driver` (see `activities/providers/base.py`) of a provider's pods.

    The zone of a pod is its cloud, `secure` or `community`. A pod is found in whichever it is.
    """

    def __init__(self, session: RunPodSession, provider_id: str) -> None:
        self._session = session
        self._provider_id = provider_id
        self.carry_out: Callable[[Delete], None] = unkept

    def find(self, name: str, zone: str) -> MachineObservation | None:  # noqa: ARG002
        """A pod that a list showed seconds ago is found in it; that one is gone is asked anew."""
        if seen := self._named(name, self._session.recent_pods()):
            return shown(seen[0], name)
        return self._find_anew(name)

    def _find_anew(self, name: str) -> MachineObservation | None:
        pods = self._pods(name)
        if not pods:
            return None
        first, *others = pods
        for other in others:
            self._session.delete(str(other["id"]))
        return shown(first, name)

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        if (found := self._find_anew(name)) is not None:
            return found
        body = pod_body(marketplace_name(name, self._provider_id), name, offer, spec)
        return shown(self._session.create(body), name)

    def terminate(self, name: str, zone: str) -> str:  # noqa: ARG002
        """Delete every pod of the name by its id, so that a late request spares a newer one."""
        pods = self._pods(name)
        for pod in pods:
            self.carry_out(partial(self._session.delete, str(pod["id"])))
        return f"{name}: {len(pods)} pods had the name, all deleted" if len(pods) > 1 else ""

    def billed_period(
        self,
        name: str,  # noqa: ARG002
        zone: str,  # noqa: ARG002
        machine_id: str | None,  # noqa: ARG002
    ) -> MachineObservation:
        """Without its times, because RunPod tells the sums of whole hours alone."""
        return GONE

    def list_owned(self) -> Sequence[OwnedPod]:
        owned = []
        for pod in self._session.pods():
            name = own_machine_name(str(pod["name"]), self._provider_id)
            if name is not None and pod.get("status") != TERMINATED:
                owned.append(OwnedPod(name, pod))
        return owned

    def _pods(self, name: str) -> list[Mapping[str, Any]]:
        """The pods of a name that are there, the one to keep first: one that runs, which may have
        work, however late another one has appeared; else the oldest."""
        return self._named(name, self._session.pods())

    def _named(self, name: str, pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        wanted = marketplace_name(name, self._provider_id)
        found = [pod for pod in pods if pod["name"] == wanted and pod.get("status") != TERMINATED]
        return sorted(found, key=_order)


def _order(pod: Mapping[str, Any]) -> tuple[bool, str, str]:
    is_running = pod.get("status") == RUNNING
    return not is_running, str(pod.get("createdAt")), str(pod["id"])


def runpod_machines(provider_id: str) -> RunPodMachines:
    """The driver of a provider's pods, with the key to which its row refers now.

    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    return RunPodMachines(runpod_session(provider_id), provider_id)
