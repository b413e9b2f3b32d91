"""The driver of Vast.ai's instances, by its REST API.

An acceptance cannot be repeated safely, and a refusal may leave an instance that costs money. So an
instance is looked for by its label, which has the provider's id, before an offer is accepted and
after every unclear answer; what a refusal leaves is destroyed at once. An instance is destroyed and
never stopped, because a stopped one pays for its disk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from activities.providers.base import CapacityExhausted, RequestRefused
from activities.providers.deletions import Delete, unkept
from activities.providers.image_machines import marketplace_name, own_machine_name
from activities.providers.vastai.errors import failure_of, misread
from activities.providers.vastai.instances import HAVE_RUN, instance_body, is_held, shown
from activities.providers.vastai.session import VastSession, vastai_session
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec
from workflows.contracts.statuses import MachineState

GONE = MachineObservation(state=MachineState.GONE)


@dataclass(frozen=True)
class OwnedInstance:
    """The `OwnedMachine` of one instance."""

    machine_name: str
    instance: Mapping[str, Any]

    @property
    def zone(self) -> str:
        return self.seen.zone

    @property
    def seen(self) -> MachineObservation:
        return shown(self.instance, self.machine_name).model_copy(update={"minion_id": None})


class VastMachines:
    """The `Driver` (see `activities/providers/base.py`) of a provider's instances.

    The zone of an instance is the country of its host. An instance is found in whichever it is.
    """

    def __init__(self, session: VastSession, provider_id: str) -> None:
        self._session = session
        self._provider_id = provider_id
        self.carry_out: Callable[[Delete], None] = unkept

    def find(self, name: str, zone: str) -> MachineObservation | None:  # noqa: ARG002
        """An instance that a list showed seconds ago is found in it; that one is gone is asked
        anew."""
        if seen := self._named(name, self._session.recent_instances()):
            return shown(seen[0], name)
        return self._find_anew(name)

    def _find_anew(self, name: str) -> MachineObservation | None:
        instances = self._instances(name)
        if not instances:
            return None
        first, *others = instances
        for other in others:
            self._session.destroy(int(other["id"]))
        return shown(first, name)

    def create(self, name: str, offer: MachineOffer, spec: MachineSpec) -> MachineObservation:
        """Accept the offer, unless an instance has the name; what a refusal leaves is destroyed.

        Raises: Unavailable, CapacityExhausted, RequestRefused.
        """
        if (found := self._find_anew(name)) is not None:
            return found
        if not offer.provider_offer_id.isdecimal():
            raise RequestRefused(
                f"{name}: offer {offer.label}: asked the number of an ask, has none"
            )
        body = instance_body(marketplace_name(name, self._provider_id), name, offer, spec)
        answer = self._session.accept(int(offer.provider_offer_id), body)
        number = answer.fields.get("new_contract")
        is_made = answer.is_success and answer.fields.get("success") is True
        if not is_made:
            if isinstance(number, int):
                self._session.destroy(number)
            raise failure_of(answer)
        if not isinstance(number, int):
            raise misread(answer, "the number of the new instance")
        return self._made(name, number, offer)

    def terminate(self, name: str, zone: str) -> str:  # noqa: ARG002
        """Destroy every instance of the label by its number, so that a late request spares a newer
        one."""
        instances = self._instances(name)
        for instance in instances:
            self.carry_out(partial(self._session.destroy, int(instance["id"])))
        count = len(instances)
        return f"{name}: {count} instances had the label, all destroyed" if count > 1 else ""

    def billed_period(
        self,
        name: str,  # noqa: ARG002
        zone: str,  # noqa: ARG002
        machine_id: str | None,  # noqa: ARG002
    ) -> MachineObservation:
        """Without its times, because an instance that is destroyed is in no list."""
        return GONE

    def list_owned(self) -> Sequence[OwnedInstance]:
        owned = []
        for instance in self._session.instances():
            name = own_machine_name(str(instance.get("label")), self._provider_id)
            if name is not None:
                owned.append(OwnedInstance(name, instance))
        return owned

    def _made(self, name: str, number: int, offer: MachineOffer) -> MachineObservation:
        """A new instance with its price, which the answer to the acceptance does not have.

        Raises: CapacityExhausted, when it only waits for GPUs that somebody else has.
        """
        instance = self._session.instance(number)
        if instance is None:
            return MachineObservation(
                state=MachineState.MAKING,
                zone=offer.zone,
                provider_machine_id=str(number),
                offer_label=offer.label,
            )
        if is_held(instance):
            self._session.destroy(number)
            raise CapacityExhausted(f"{name}: offer {offer.provider_offer_id} is somebody else's")
        return shown(instance, name)

    def _instances(self, name: str) -> list[Mapping[str, Any]]:
        """The instances of a name, the one to keep first: one that has run, which may have work,
        however late another one has appeared; else the oldest."""
        return self._named(name, self._session.instances())

    def _named(self, name: str, instances: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        wanted = marketplace_name(name, self._provider_id)
        return sorted((each for each in instances if each.get("label") == wanted), key=_order)


def _order(instance: Mapping[str, Any]) -> tuple[bool, int]:
    return instance.get("actual_status") not in HAVE_RUN, int(instance["id"])


def vastai_machines(provider_id: str) -> VastMachines:
    """The driver of a provider's instances, with the key to which its row refers now.

    Raises: RequestRefused, when the provider has no key, or its key is malformed.
    """
    return VastMachines(vastai_session(provider_id), provider_id)
