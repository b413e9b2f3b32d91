"""The facts of both parties of a federated job, from rows."""

from sqlmodel import Session, col, select

from activities.db.tables import (
    Account,
    FederatedJob,
    Model,
    Node,
    Project,
    ProjectMember,
    Region,
    User,
)
from workflows.contracts.federation import LogPolicy
from workflows.contracts.statuses import NodeStatus, RegionStatus
from workflows.rules.accounts.memberships import may_create_federated
from workflows.rules.accounts.permissions import Role
from workflows.rules.accounts.plans import Feature, refusal_of
from workflows.rules.federation.parties import Confinement, Parties

_COMPUTE = "compute"
_IN_USE = (NodeStatus.ACTIVE, NodeStatus.MAINTENANCE, NodeStatus.OFFLINE)


def parties_of(session: Session, row: FederatedJob) -> Parties:
    """The facts of both parties now; the row need not be in the database yet."""
    project = session.get_one(Project, row.project_id)
    model = session.get(Model, row.model_id)
    creator = session.get_one(Account, row.account_id)
    given = confinement_of(row)
    return Parties(
        creator_account_id=row.account_id,
        consumer_account_id=row.consumer_account_id,
        project_name=project.name,
        model_id=row.model_id,
        plan_refusal=refusal_of(Feature.FEDERATED_JOBS, creator.plan, creator.name),
        is_user_there=_is_user_there(session, row),
        may_create=_may_create(session, row),
        model_account_id=None if model is None else model.account_id,
        model_status=None if model is None else model.status,
        is_project_there=project.removed_at is None,
        only_owned=project.use_only_owned_resources,
        has_machines=given is not None or _has_machines(session, row.consumer_account_id),
        allowed=confinement_by(project),
        given=given,
    )


def confinement_by(project: Project) -> Confinement:
    """What a project allows to federated jobs that are created now."""
    return Confinement(
        egress=tuple(project.federated_egress or ()), logs=LogPolicy(project.federated_logs)
    )


def confinement_of(row: FederatedJob) -> Confinement | None:
    """What a federated job was confined to when its job was created; None: it is not created."""
    if row.logs is None:
        return None
    return Confinement(egress=tuple(row.egress or ()), logs=LogPolicy(row.logs))


def _is_user_there(session: Session, row: FederatedJob) -> bool:
    user = session.get(User, row.creator_user_id)
    may_work = (Role.OWNER, Role.MEMBER)
    return user is not None and user.account_id == row.account_id and user.role in may_work


def _may_create(session: Session, row: FederatedJob) -> bool:
    if row.account_id == row.consumer_account_id:
        return True
    member = session.get(ProjectMember, (row.project_id, row.creator_user_id))
    return member is not None and may_create_federated(member.permissions)


def _has_machines(session: Session, account_id: str) -> bool:
    """Whether the account has a node that takes jobs, or a cloud region that makes one."""
    services = select(Node.services).where(
        col(Node.account_id) == account_id, col(Node.status).in_(_IN_USE)
    )
    if any(_COMPUTE in each for each in session.exec(services)):
        return True
    clouds = select(Region.id).where(
        col(Region.account_id) == account_id,
        col(Region.cloud_region).is_not(None),
        col(Region.status) == RegionStatus.HEALTHY,
    )
    return session.exec(clouds.limit(1)).first() is not None
