"""What the parties of federated jobs ask, by the services of the API, and what each allows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from sqlmodel import Session

from activities.db import tables
from activities.db.ids import new_id
from api.changes import ChangeContext
from api.schemas.accounts import AccountChange, ProjectChange, ProjectCreation
from api.schemas.members import MemberChange
from api.services import accounts, federated_jobs, members, projects
from tests.simulation.contracts import Refused
from tests.simulation.plan import JobPlan
from tests.simulation.rows_real import RealRows
from tests.simulation.submissions import submission_of
from workflows.contracts.artifacts import ArtifactStatus
from workflows.contracts.federation import LogPolicy
from workflows.rules.accounts.plans import Plan

EGRESS = ("10.0.0.9:443",)
ALL = {"federated": "all"}
READS = {"job": "read"}


@dataclass(frozen=True)
class Consent:
    """What both parties allow at one instant, as people have said it."""

    creators: frozenset[str] = frozenset()
    """The accounts whose users may create jobs in the project; its owner always may."""
    enterprises: frozenset[str] = frozenset()
    """The accounts whose plan unlocks federated jobs."""
    only_owned: bool = True
    egress: tuple[str, ...] = EGRESS
    logs: LogPolicy = LogPolicy.ALL

    def allows(self, account_id: str, given: "Consent | None" = None) -> bool:
        """Whether a federated job of this account is allowed.

        given: what was allowed when its job was created; None: it is not created yet.
        """
        is_narrowed = given is not None and (
            not set(given.egress) <= set(self.egress)
            or (given.logs is LogPolicy.ALL and self.logs is not LogPolicy.ALL)
        )
        is_creator, has_plan = account_id in self.creators, account_id in self.enterprises
        return is_creator and has_plan and self.only_owned and not is_narrowed


@dataclass
class Parties:
    """A clinic with machines and a project; makers with a model each. The clinic has one too."""

    rows: RealRows
    clinic: str
    makers: tuple[str, ...]
    now: Callable[[], datetime]
    consent: Consent = field(default_factory=Consent)
    history: list[tuple[datetime, Consent]] = field(default_factory=list)
    """What was allowed from each instant on."""
    models: dict[str, str] = field(default_factory=dict)
    """The model of each account."""
    project_id: str = ""

    def begin(self) -> None:
        """Everybody allows everything."""
        self.project_id = self.rows.change(self.clinic, self._project)
        for account_id in (self.clinic, *self.makers):
            self.change_plan(account_id, Plan.ENTERPRISE)
            self.models[account_id] = self.rows.change(account_id, self._model)
        for account_id in self.makers:
            self.rows.change(self.clinic, partial(self._join, account_id))
        everybody = frozenset((self.clinic, *self.makers))
        self._note(replace(self.consent, creators=everybody))

    # ── federated jobs ──────────────────────────────────────────────────────────────────────

    def create(self, account_id: str, plan: JobPlan, index: int) -> tuple[str, str]:
        """The ids of a new federated job, and of the job that it may create. Raises: Refused."""
        asked = submission_of(plan, index, has_data=False)
        document = asked.model_dump(mode="json", exclude_defaults=True)
        document["project_id"] = self.project_id
        document["data"] = {"model": {"id": self.models[account_id]}, "output": None}

        def create(context: ChangeContext) -> tuple[str, str]:
            read = federated_jobs.read_federated(document)
            made = federated_jobs.create_federated_job(context, read)
            return made.id, context.session.get_one(tables.FederatedJob, made.id).job_id

        return self.rows.change(account_id, create)

    def cancel(self, account_id: str, federated_id: str) -> None:
        """Raises: Refused."""
        self.rows.change(
            account_id, lambda context: federated_jobs.cancel_federated_job(context, federated_id)
        )

    # ── consent ─────────────────────────────────────────────────────────────────────────────

    def remove_member(self, account_id: str) -> None:
        user_id = self.rows.user_of(account_id)
        self.rows.change(
            self.clinic, lambda context: members.remove_member(context, self.project_id, user_id)
        )
        self._note(replace(self.consent, creators=self.consent.creators - {account_id}))

    def change_member(self, account_id: str, permissions: dict[str, str]) -> None:
        user_id, asked = self.rows.user_of(account_id), MemberChange(permissions=permissions)
        self.rows.change(
            self.clinic,
            lambda context: members.change_member(context, self.project_id, user_id, asked),
        )
        others = self.consent.creators - {account_id}
        creators = others | {account_id} if permissions == ALL else others
        self._note(replace(self.consent, creators=creators))

    def change_project(self, **settings: Any) -> None:
        asked = ProjectChange(**settings)
        self.rows.change(
            self.clinic, lambda context: projects.change_project(context, self.project_id, asked)
        )
        changes = {
            "only_owned": settings.get("use_only_owned_resources", self.consent.only_owned),
            "egress": tuple(settings.get("federated_egress", self.consent.egress)),
            "logs": LogPolicy(settings.get("federated_logs", self.consent.logs)),
        }
        self._note(replace(self.consent, **changes))

    def change_plan(self, account_id: str, plan: Plan) -> None:
        asked = AccountChange(plan=plan)
        self.rows.change(None, lambda context: accounts.change_account(context, account_id, asked))
        others = self.consent.enterprises - {account_id}
        has_it = plan is Plan.ENTERPRISE
        enterprises = others | {account_id} if has_it else others
        self._note(replace(self.consent, enterprises=enterprises))

    def lost_at(self, account_id: str, given: Consent | None) -> datetime | None:
        """Since when a federated job is not allowed, without an end; None: it is allowed."""
        lost: datetime | None = None
        for at, consent in self.history:
            if consent.allows(account_id, given):
                lost = None
            elif lost is None:
                lost = at
        return lost

    def _note(self, consent: Consent) -> None:
        self.consent = consent
        self.history.append((self.now(), consent))

    # ── rows that the story begins with ─────────────────────────────────────────────────────

    @staticmethod
    def _project(context: ChangeContext) -> str:
        asked = ProjectCreation(
            name="reads",
            use_only_owned_resources=True,
            federated_egress=list(EGRESS),
            federated_logs=LogPolicy.ALL,
        )
        return projects.create_project(context, asked).id

    @staticmethod
    def _model(context: ChangeContext) -> str:
        """A model that is ready: how it has come there is not played here."""
        caller, now = context.caller, context.now
        account = context.session.get_one(tables.Account, caller.account_id)
        model = tables.Model(
            id=new_id("mod"), account_id=account.id, project_id=account.personal_project_id,
            name="cells", status=ArtifactStatus.READY.value, source={},
            creator_user_id=caller.user_id, creator_account_id=account.id,
            content_sha256="ab" * 32, size_bytes=70, unpacked_bytes=60, file_count=2,
            created_at=now, updated_at=now,
        )  # fmt: skip
        context.session.add(model)
        return model.id

    def _join(self, account_id: str, context: ChangeContext) -> None:
        """As after an invitation that was accepted."""
        add_member(context.session, self.project_id, self.rows.user_of(account_id), context.now)

    def join_again(self, account_id: str) -> None:
        """A member that was removed is invited again. Raises: Refused, when it is a member."""
        if account_id in self.consent.creators:
            raise Refused(f"{account_id}: is a member")
        user_id = self.rows.user_of(account_id)

        def join(context: ChangeContext) -> None:
            if context.session.get(tables.ProjectMember, (self.project_id, user_id)) is None:
                add_member(context.session, self.project_id, user_id, context.now)

        self.rows.change(self.clinic, join)
        self.change_member(account_id, ALL)


def add_member(session: Session, project_id: str, user_id: str, at: datetime) -> None:
    session.add(
        tables.ProjectMember(
            project_id=project_id, user_id=user_id, permissions=dict(ALL), created_at=at
        )
    )
    session.flush()
