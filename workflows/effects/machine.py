"""Effects of a machine that costs money: made, looked at, given back; what is short; its holder."""

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import CAPACITY_EXHAUSTED, NEVER_RETRIED, REQUEST_REFUSED
from workflows.contracts.machine import (
    MachineLost,
    MachineOffer,
    MachineReady,
    MachineSeen,
    MachineSpec,
    Shortage,
)
from workflows.contracts.provider import NewsState
from workflows.contracts.states import ProviderKind
from workflows.effects.effect import HEARTBEAT_S, Effect


class NamedMachine(Contract):
    """A machine by the name that its lease gave it."""

    lease_id: str
    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    place: str = ""


class CreateMachine(NamedMachine):
    """Find it by its name, else make it."""

    offer: MachineOffer
    spec: MachineSpec


class LookAtMachine(NamedMachine):
    pass


class ReleaseMachine(NamedMachine):
    """End it; answered when the provider says that it is gone."""

    provider_machine_id: str | None = None
    """By it the provider may still say since when and until when a machine cost that is gone."""
    was_unseen: bool = False
    """It may have been there although nobody saw it: the last of its name there is meant."""


class EndUnknownMachine(Contract):
    """End a machine that no lease names; refused when there is one that does."""

    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    place: str


class FollowNews(Contract):
    """Have the news of a provider's machines listened to, by one workflow of its own."""

    provider_id: str
    kind: ProviderKind


class ListenForNews(Contract):
    """Listen for `for_s` seconds, and tell the workflows of the machines what they need to know."""

    provider_id: str
    kind: ProviderKind
    for_s: float


class NewsHeard(Contract):
    """How many messages came; all of them are settled, whatever was in them."""

    told: int = 0
    """About machines that are held: their workflows know."""
    unheeded: int = 0
    """About others, of no meaning, or not to be read."""
    is_over: bool = False
    """The provider is being removed: nobody needs to listen any more."""


class TellNewsState(Contract):
    """Signal the provider's workflow."""

    provider_id: str
    state: NewsState


class FindShortages(Contract):
    provider_id: str


class ShortagesFound(Contract):
    shortages: tuple[Shortage, ...] = ()


class RememberShortage(Contract):
    provider_id: str
    scope: str
    reason: str


class TellHolder(Contract):
    """Signal the workflow of the resource that the machine is for."""

    holder_id: str
    ready: MachineReady | None = None
    lost: MachineLost | None = None


class HolderTold(Contract):
    is_there: bool
    """False: its workflow has ended, or never was."""


LISTEN_S = 3600.0
"""How long one attempt at listening lasts: then it is begun anew, and its history does not grow."""

_ANSWERED = (*NEVER_RETRIED, CAPACITY_EXHAUSTED, REQUEST_REFUSED)
"""What a provider has decided; all else is asked again."""

create_machine = Effect(
    "create_machine",
    CreateMachine,
    MachineSeen,
    start_to_close_s=300,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    never_retried=_ANSWERED,
    is_waited_for=True,
)
"""Given up, it is left only when its attempt is over: nothing is made behind its release."""

look_at_machine = Effect(
    "look_at_machine",
    LookAtMachine,
    MachineSeen,
    start_to_close_s=60,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    never_retried=_ANSWERED,
)
glance_at_machine = Effect(
    "look_at_machine",
    LookAtMachine,
    MachineSeen,
    start_to_close_s=20,
    schedule_to_close_s=40,
    heartbeat_s=HEARTBEAT_S,
    attempts=2,
    never_retried=_ANSWERED,
)
"""What it was, before its end is asked for; that does not wait for an answer."""

await_machine = Effect(
    "await_machine",
    LookAtMachine,
    MachineSeen,
    start_to_close_s=60,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_most_s=10,
    never_retried=_ANSWERED,
)
"""Until it has an address and a key, or is no more: `NotYet` is asked again by the engine."""

release_machine = Effect(
    "release_machine",
    ReleaseMachine,
    MachineSeen,
    start_to_close_s=120,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    never_retried=_ANSWERED,
)
"""For ever: it costs money until its provider says that it is gone."""

end_unknown_machine = Effect(
    "end_unknown_machine",
    EndUnknownMachine,
    MachineSeen,
    start_to_close_s=120,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    never_retried=_ANSWERED,
)
"""Answered when its provider says that it is gone."""

follow_news = Effect("follow_news", FollowNews, Done, schedule_to_close_s=600)
listen_for_news = Effect(
    "listen_for_news",
    ListenForNews,
    NewsHeard,
    queue=queues.NEWS,
    start_to_close_s=2 * LISTEN_S,
    schedule_to_start_s=600,
    heartbeat_s=HEARTBEAT_S,
    attempts=5,
    never_retried=_ANSWERED,
)
"""One for each provider, whichever worker does it; another takes it up when that one is gone."""

tell_news_state = Effect("tell_news_state", TellNewsState, Done, schedule_to_close_s=600)

find_shortages = Effect("find_shortages", FindShortages, ShortagesFound)
remember_shortage = Effect("remember_shortage", RememberShortage, Done)
tell_holder = Effect("tell_holder", TellHolder, HolderTold, schedule_to_close_s=600)
