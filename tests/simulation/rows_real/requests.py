"""What people ask: the services of the API, each in the transaction of one request.

A request goes the way of `api/changes.py:Change`, from its caller and its document on, without
HTTP, idempotency keys and audit entries.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from activities.accounts.accounts import add_account
from activities.db.session import database
from activities.db.tables import Account, Node
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem
from api.schemas.accounts import CreditGrant
from api.schemas.artifacts import ArtifactCreation
from api.schemas.datastores import DatastoreCreation
from api.schemas.join_tokens import JoinTokenCreation
from api.schemas.nodes import AnnouncementCreation, NodeCreation
from api.schemas.providers import ProviderCreation
from api.schemas.regions import GuestPolicy, RegionChange, RegionCreation
from api.services import (
    announcements,
    artifacts,
    billing,
    datastores,
    job_submissions,
    jobs,
    join_tokens,
    leases,
    nodes,
    providers,
    regions,
)
from api.services.lifecycles import GONE
from tests.simulation.contracts import Refused, Verb
from tests.simulation.rows_real.house import Tenant
from workflows.contracts.artifacts import WebSource
from workflows.contracts.datastores import DatastoreType
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.lifecycles import DATASET, LIFECYCLE_NOUNS, NODE, Refresh, noun_of
from workflows.contracts.nodes import NODE_ACTIONS, NodeAction
from workflows.contracts.removals import Removal
from workflows.rules.catalogue.providers import traits_of
from workflows.rules.nodes.requirements import ALL

T = TypeVar("T")
Asked = Callable[[ChangeContext], T]
ACTIONS: Mapping[Verb, NodeAction] = {
    Verb.ACTIVATE: NODE_ACTIONS[0],
    Verb.MAINTAIN: NODE_ACTIONS[1],
    Verb.REBOOT: NODE_ACTIONS[2],
}
JOIN_FOR_S = 3600
SOURCE = WebSource(type="web", url="https://example.test/cats.tar")
_ZONE = re.compile(r"-[a-z]$")


@dataclass(frozen=True)
class Key:
    """The key of a cloud project, which nobody opens here: the world's clouds ask for none."""

    project_id: str

    @property
    def shown(self) -> dict[str, str]:
        return {"project_id": self.project_id, "service_account": "baseload", "key": "0"}


class Requests:
    """The API of a life; `take` gives the outbox rows that its dispatcher has not relayed yet."""

    def __init__(self, tenant: Tenant) -> None:
        self._tenant = tenant
        self._callers: dict[str, Caller] = {}
        self._hosts: dict[str, str] = {}
        """Where machines have said that they are, by minion id."""
        self._tokens: dict[str, str] = {}
        """The join tokens with which machines announce themselves, by minion id."""
        self._dispatch: list[str] = []
        self._administrator = self._new_account("administrator", is_administrator=True)

    def take(self, most: int) -> list[str]:
        taken, self._dispatch = self._dispatch[:most], self._dispatch[most:]
        return taken

    # ── new resources ───────────────────────────────────────────────────────────────────────

    def add_account(self, microcredits: int) -> str:
        caller = self._new_account(f"account-{len(self._callers)}")
        self._callers[caller.account_id] = caller
        if microcredits:
            self._top_up(caller.account_id, microcredits)
        return caller.account_id

    def add_provider(self, account_id: str, kind: str) -> str:
        def add(context: ChangeContext) -> str:
            asked = ProviderCreation(kind=kind)
            key = None
            if traits_of(kind).is_cloud:
                project = Key(f"project-{self._count('providers')}")
                key = providers.ReadCredentials(content="{}", key=project)
            return providers.enable_provider(context, asked, key).id

        return self._change(self._caller(account_id), add)

    def add_region(
        self, provider_id: str, zone: str, *, storage: bool, own_worker: bool = False
    ) -> str:
        """storage: of own machines; a region in a cloud always makes its storage node itself."""

        def add(context: ChangeContext) -> str:
            where: dict[str, Any] = {"storage_mode": "central" if storage else "local"}
            if zone:
                where = {"cloud_region": _ZONE.sub("", zone)}
            name = f"region-{self._count('regions')}"
            where["own_worker"] = own_worker
            asked = RegionCreation(
                provider_id=provider_id, name=name, relaxed_requirements=(ALL,), **where
            )
            return regions.create_region(context, asked).id

        return self._change(self._owner(provider_id), add)

    def let_guests_in(self, region_id: str, preemption_notice_s: int | None) -> None:
        policy = GuestPolicy(preemption_notice_s=preemption_notice_s)
        asked = RegionChange(public=True, guest_policy=policy)

        def change(context: ChangeContext) -> None:
            regions.change_region(context, region_id, asked)

        self._change(self._owner(region_id), change)

    def add_dataset(self, account_id: str) -> str:
        def add(context: ChangeContext) -> str:
            asked = ArtifactCreation(name=f"dataset-{self._count('datasets')}", source=SOURCE)
            return artifacts.create_artifact(context, DATASET, asked).id

        return self._change(self._caller(account_id), add)

    def add_node(self, region_id: str, minion_id: str) -> str:
        """The machine announces itself with a join token of the region before it is added."""
        owner = self._owner(region_id)
        asked = JoinTokenCreation(region_id=region_id, expires_in_s=JOIN_FOR_S)
        self._tokens[minion_id] = self._change(
            owner, lambda context: join_tokens.create_join_token(context, asked).secret
        )
        if minion_id in self._hosts:
            self.announce(minion_id, self._hosts[minion_id])

        def add(context: ChangeContext) -> str:
            name = f"node-{self._count('nodes')}"
            services = self._services(region_id)
            asked = NodeCreation(
                region_id=region_id, name=name, minion_id=minion_id, services=services
            )
            return nodes.add_node(context, asked).id

        return self._change(owner, add)

    def add_datastore(self, region_id: str) -> str:
        owner = self._owner(region_id)

        def add(context: ChangeContext) -> str:
            context.session.get_one(Account, owner.account_id).plan = "team"
            asked = DatastoreCreation(
                region_id=region_id,
                name=f"share-{self._count('datastores')}",
                type=DatastoreType.SMB,
                address="nas",
                root_path="/data",
                user="ada",
                password="hidden",
            )
            return datastores.create_datastore(context, asked).id

        return self._change(owner, add)

    def announce(self, minion_id: str, host: str) -> None:
        """Before anybody has added the machine, it has no token, and only waits with its address.

        A token that is not valid any more is a machine that nobody listens to.
        """
        self._hosts[minion_id] = host
        token = self._tokens.get(minion_id)
        if token is None:
            return

        def announce(context: ChangeContext) -> None:
            asked = AnnouncementCreation(
                token=token, minion_id=minion_id, host_public_key="", address=host, port=22
            )
            announcements.announce(context, asked)

        try:
            self._change(announcements.anonymous_caller(), announce)
        except Refused as refusal:
            self._tenant.temporal.note("the API", f"refuses the announcement of {host}: {refusal}")

    def submit(self, account_id: str, submission: JobSubmission) -> str:
        document = submission.model_dump(mode="json", exclude_defaults=True)
        caller = self._caller(account_id)
        with self._tenant.at_work():
            asked = job_submissions.read_document(document)
        return self._change(caller, lambda context: job_submissions.submit_job(context, asked).id)

    # ── what is asked of those that are there ───────────────────────────────────────────────

    def ask(self, resource_id: str, verb: Verb, details: Mapping[str, Any]) -> str | None:
        if verb is Verb.TOP_UP:
            self._top_up(resource_id, int(details.get("microcredits", 10_000_000)))
            return None
        caller = self._owner(resource_id)
        if verb is Verb.RESUBMIT:
            return self._resubmit(caller, resource_id)
        noun = noun_of(resource_id).name
        force = bool(details.get("force", False))
        answer = self._route(noun, verb, resource_id, force=force)
        if answer is None:
            raise Refused(f"{resource_id}: there is no route {verb}")
        self._change(caller, answer)
        return None

    def _route(self, noun: str, verb: Verb, id_: str, *, force: bool) -> Asked[Any] | None:
        """The service behind the route of a verb; None: there is no such route."""
        if verb is Verb.RESCHEDULE_REMOVE and noun == "node":
            return lambda context: _reschedule(context, id_)
        if verb is Verb.REFRESH:
            said = Refresh() if noun_of(id_) is NODE else None
            return lambda context: context.tell(id_, "refresh", said)
        if verb in (Verb.REMOVE, Verb.FORCE_REMOVE):
            return _removal(noun, id_, force=force or verb is Verb.FORCE_REMOVE)
        if verb in ACTIONS and noun == "node":
            return lambda context: nodes.act(context, id_, ACTIONS[verb], force=force)
        routes: dict[tuple[str, Verb], Asked[Any]] = {
            ("job", Verb.CANCEL): lambda context: jobs.cancel_job(context, id_, discards=False),
            ("job", Verb.DISCARD): lambda context: jobs.cancel_job(context, id_, discards=True),
            ("job", Verb.STOP): lambda context: jobs.stop_job(context, id_),
            ("job", Verb.START): lambda context: jobs.start_job(context, id_),
            ("node", Verb.REPLACE): lambda context: nodes.replace_node(context, id_, None),
            ("provider", Verb.RECHECK): lambda context: providers.recheck_provider(context, id_),
            ("dataset", Verb.RETRY): lambda context: artifacts.retry_artifact(
                context, DATASET, id_
            ),
            ("lease", Verb.KILL): lambda context: leases.kill(context, id_),
        }
        return routes.get((noun, verb))

    def _resubmit(self, caller: Caller, job_id: str) -> str:
        with self._tenant.at_work():
            try:
                again = job_submissions.document_again(caller, job_id)
            except Problem as refusal:
                raise _refused(refusal) from refusal
            asked = job_submissions.read_document(again.document)
        numbers = again.numbers
        return self._change(
            caller, lambda context: job_submissions.resubmit_job(context, asked, numbers).id
        )

    def _top_up(self, account_id: str, microcredits: int) -> None:
        def grant(context: ChangeContext) -> None:
            asked = CreditGrant(amount_microcredits=microcredits)
            billing.grant_credits(context, account_id, asked)

        self._change(self._administrator, grant)

    def change(self, account_id: str | None, asked: Asked[T]) -> T:
        """What somebody of an account asks of a service; None: the administrator does.

        Raises: Refused.
        """
        caller = self._administrator if account_id is None else self._caller(account_id)
        return self._change(caller, asked)

    def user_of(self, account_id: str) -> str:
        """The user who asks for an account."""
        return self._caller(account_id).user_id

    # ── a request ───────────────────────────────────────────────────────────────────────────

    def _change(self, caller: Caller, asked: Asked[T]) -> T:
        """As api/changes.py:Change._commit. Raises: Refused."""
        with self._tenant.at_work():
            try:
                with database().write() as session:
                    context = ChangeContext(session, caller, datetime.now(UTC), "simulated")
                    given = asked(context)
            except (Problem, ValidationError) as refusal:
                raise _refused(refusal) from refusal
        self._dispatch += context.requests
        return given

    def _new_account(self, name: str, *, is_administrator: bool = False) -> Caller:
        with self._tenant.at_work(), database().write() as session:
            account, owner = add_account(session, name, None, datetime.now(UTC))
            account.is_administrator = is_administrator
            return Caller(
                account_id=account.id,
                user_id=owner.id,
                key_id="",
                scopes=frozenset("*"),
                is_administrator=is_administrator,
                home_account_id=account.id,
                role="owner",
            )

    def _caller(self, account_id: str) -> Caller:
        if account_id not in self._callers:
            raise Refused(f"{account_id}: there is no such account")
        return self._callers[account_id]

    def _owner(self, resource_id: str) -> Caller:
        """The owner of a resource. Raises: Refused, when there is no such resource."""
        try:
            table = noun_of(resource_id).plural
        except ValueError as unknown:
            raise Refused(str(unknown)) from unknown
        found = self._one(f"SELECT account_id FROM {table} WHERE id = ?", resource_id)
        if found is None:
            raise Refused(f"{resource_id}: there is no such resource")
        return self._caller(found)

    def _services(self, region_id: str) -> Sequence[str]:
        """The first machine of a region with central storage is its storage node."""
        mode = self._one("SELECT storage_mode FROM regions WHERE id = ?", region_id)
        query = "SELECT id FROM nodes WHERE region_id = ? AND status != 'archived'"
        if mode == "central" and self._one(query, region_id) is None:
            return ("storage",)
        return ("compute",)

    def _count(self, table: str) -> int:
        if table not in {noun.plural for noun in LIFECYCLE_NOUNS}:
            raise ValueError(f"{table}: is no table of a lifecycle")
        return int(self._one(f"SELECT count(*) FROM {table}"))

    def _one(self, query: str, *values: str) -> Any:
        self._tenant.house.enter(self._tenant)
        row = self._tenant.house.raw.execute(query, values).fetchone()
        return None if row is None else row[0]


def _refused(refusal: Problem | ValidationError) -> Refused:
    if isinstance(refusal, ValidationError):
        return Refused(f"invalid-request: {refusal}")
    mistakes = "; ".join(f"{each.field}: {each.rule}" for each in refusal.mistakes)
    return Refused(f"{refusal.code}: {refusal.detail} {mistakes}".strip())


def _removal(noun: str, id_: str, *, force: bool) -> Asked[Any] | None:
    removals: dict[str, Asked[Any]] = {
        "job": lambda context: jobs.remove_job(context, id_),
        "node": lambda context: nodes.remove_node(context, id_, force=force),
        "region": lambda context: regions.remove_region(context, id_, force=force),
        "provider": lambda context: providers.remove_provider(context, id_, force=force),
        "dataset": lambda context: artifacts.remove_artifact(context, DATASET, id_),
        "datastore": lambda context: datastores.remove_datastore(context, id_),
    }
    return removals.get(noun)


def _reschedule(context: ChangeContext, node_id: str) -> None:
    """The removal as a region that is removed asks it of its nodes: it has no route of its own."""
    row = context.session.get_one(Node, node_id)
    if row.status not in GONE:
        by = context.caller.user_id
        context.tell(node_id, "remove", Removal(force=True, requested_by=by, reschedules=True))
