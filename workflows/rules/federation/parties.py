"""What both parties of a federated job must allow, and what each refusal says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.federation import LogPolicy, PartyWords

_NO_MODEL = "the creator's model is not ready"


class Party(StrEnum):
    """Whose rule it is that refuses a federated job."""

    CREATOR = "creator"
    """The owner of the model, who asks for the job."""
    CONSUMER = "consumer"
    """The owner of the project, the machines and the data."""


class RefusalCode(StrEnum):
    """What a refusal is for programs; the values are codes of the API's problems."""

    PLAN = "plan-required"
    FORBIDDEN = "forbidden"
    CONFLICT = "conflict"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that is not met; others: its words for the other party, None: the same."""

    party: Party
    code: RefusalCode
    words: str
    others: str | None = None

    def words_for(self, party: Party | None) -> str:
        """What a party reads of it; None: what both may read."""
        return self.words if party is self.party or self.others is None else self.others


@dataclass(frozen=True, slots=True)
class Confinement:
    """What the runs of a federated job may reach, and what of their logs leaves the node."""

    egress: tuple[str, ...] = ()
    logs: LogPolicy = LogPolicy.NONE


@dataclass(frozen=True, slots=True)
class Parties:
    """The facts of both parties at one instant.

    plan_refusal: why the plan of the creator does not unlock federated jobs; None: it does.
    is_user_there: whether the creator's user still is of the creator's account, and may work.
    may_create: whether the user may create federated jobs in the project.
    model_account_id, model_status: None when there is no such model.
    is_project_there: whether the project is not removed. only_owned: its setting
    `use_only_owned_resources`. has_machines: whether its owner has a node, or a cloud region in
    which one is made.
    allowed: what the project allows now. given: what the job was confined to when it was created;
    None: it is not created yet.
    """

    creator_account_id: str
    consumer_account_id: str
    project_name: str
    model_id: str
    plan_refusal: str | None
    is_user_there: bool
    may_create: bool
    model_account_id: str | None
    model_status: str | None
    is_project_there: bool
    only_owned: bool
    has_machines: bool
    allowed: Confinement
    given: Confinement | None = None


def refusals_of(parties: Parties) -> tuple[Refusal, ...]:
    """Why a federated job is not allowed, the creator's refusals first; empty: it is allowed."""
    return (*_of_creator(parties), *_of_consumer(parties))


def first_of(party: Party, refusals: Sequence[Refusal]) -> Refusal | None:
    """The first refusal by a rule for this party; None: there is none."""
    return next((each for each in refusals if each.party is party), None)


def words_of(refusals: Sequence[Refusal], *, is_one_owner: bool = False) -> PartyWords | None:
    """What each party reads of these refusals; None: there is none.

    is_one_owner: whether one account is both parties, and reads all.
    """
    if not refusals:
        return None
    if is_one_owner:
        return PartyWords(both="; ".join(each.words for each in refusals))

    def said(party: Party | None) -> str:
        return "; ".join(each.words_for(party) for each in refusals)

    return PartyWords(both=said(None), creator=said(Party.CREATOR), consumer=said(Party.CONSUMER))


def _of_creator(parties: Parties) -> Iterator[Refusal]:
    creator, model = parties.creator_account_id, parties.model_id
    if parties.plan_refusal is not None:
        words = "the creator's account lacks what federated jobs need"
        yield Refusal(Party.CREATOR, RefusalCode.PLAN, parties.plan_refusal, words)
    if not parties.is_user_there:
        words = f"account {creator}: the user who created the federated job may not work for it"
        yield Refusal(Party.CREATOR, RefusalCode.FORBIDDEN, f"{words} any more")
    if parties.model_account_id is None:
        words = f"model {model}: not found"
        yield Refusal(Party.CREATOR, RefusalCode.CONFLICT, words, _NO_MODEL)
    elif parties.model_account_id != creator:
        words = (
            f"model {model}: is of another account; the owner of the model starts a federated job, "
            "in a project that its consumer has invited a user of the owner to"
        )
        yield Refusal(Party.CREATOR, RefusalCode.FORBIDDEN, words, _NO_MODEL)
    elif parties.model_status != ArtifactStatus.READY and parties.given is None:
        words = f"model {model}: is {parties.model_status}; must be ready"
        yield Refusal(Party.CREATOR, RefusalCode.CONFLICT, words, _NO_MODEL)


def _of_consumer(parties: Parties) -> Iterator[Refusal]:
    project = f"project {parties.project_name}"
    if not parties.is_project_there:
        yield Refusal(Party.CONSUMER, RefusalCode.CONFLICT, f"{project}: is removed")
        return
    if not parties.may_create:
        words = f"{project}: the creator has no permission to create federated jobs in it"
        yield Refusal(Party.CONSUMER, RefusalCode.FORBIDDEN, words)
    if not parties.only_owned:
        words = (
            f"{project}: must use only owned resources (use_only_owned_resources) for federated "
            "jobs, which run on machines of the project's owner alone"
        )
        yield Refusal(Party.CONSUMER, RefusalCode.CONFLICT, words)
    if not parties.has_machines and parties.given is None:
        words = (
            f"account {parties.consumer_account_id}: owns no node and no cloud region on which a "
            "federated job could run"
        )
        others = f"{project}: has no machine on which a federated job could run"
        yield Refusal(Party.CONSUMER, RefusalCode.CONFLICT, words, others)
    if parties.given is not None:
        yield from _narrowed(project, parties.given, parties.allowed)


def _narrowed(project: str, given: Confinement, allowed: Confinement) -> Iterator[Refusal]:
    """What a job that was created has and the project does not allow any more."""
    gone = [each for each in given.egress if each not in allowed.egress]
    if gone:
        words = f"{project}: does not allow {', '.join(gone)} any more (federated_egress)"
        yield Refusal(Party.CONSUMER, RefusalCode.CONFLICT, words)
    if _shown(given.logs) > _shown(allowed.logs):
        words = f"{project}: shows less of the logs now, {allowed.logs} (federated_logs)"
        yield Refusal(Party.CONSUMER, RefusalCode.CONFLICT, words)


def _shown(logs: LogPolicy) -> int:
    return list(LogPolicy).index(logs)
