"""Consumption: who used the machines, the projects and the models of an account, and how much.

It is read from usage meters, and so counts also what costs nothing. What a run has used in a period
is what it had used at its end less what it had used at its start, so that the periods of a run add
up to what is posted of it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, distinct, func, or_, select
from sqlmodel import Session

from activities.billing.periods import Cut, Period, pieces, seconds_until, table_of
from activities.db.tables import (
    ARTIFACT_TABLES,
    Allocation,
    ArtifactUse,
    Job,
    Node,
    Region,
    UsageMeter,
)
from workflows.contracts.artifacts import ArtifactRole
from workflows.rules.billing.metering import HOUR_S
from workflows.rules.catalogue.providers import cloud_kinds

_meter: Any = UsageMeter
_job: Any = Job
_held: Any = Allocation
_node: Any = Node
_region: Any = Region
_use: Any = ArtifactUse
_model: Any = ARTIFACT_TABLES["models"]


@dataclass(frozen=True)
class Consumption:
    """What one consumer has used in one period, of one project, with one model, in one way."""

    begins_at: datetime
    consumer_id: str
    project_id: str | None
    model_id: str | None
    kind: str
    job_count: int
    seconds: int
    gpu_seconds: int
    microcredits: int
    federated_fee_microcredits: int
    """What the creators of federated jobs were charged beside that."""


def consumption_of(
    session: Session, account_id: str, period: Period, cut: Cut, limit: int
) -> list[Consumption]:
    """What was used of an account, by period, consumer, project, model and kind; grouped in SQL.

    A project or a model of others is not named.
    """
    periods = table_of(pieces(period, cut))
    begins, ends = periods.c.begins_at, periods.c.ends_at
    until_s = seconds_until(_meter.started_at, ends, _meter.posted_s)
    since_s = seconds_until(_meter.started_at, begins, _meter.posted_s)
    gpus = func.coalesce(_meter.rates["gpu_count"].as_integer(), 0)
    is_own = _job.account_id == account_id
    keys = (
        begins.label("begins_at"),
        case(
            (_is_federated(), _job.account_id),
            else_=func.coalesce(_job.creator_account_id, _job.account_id),
        ).label("consumer"),
        case((is_own, _job.project_id)).label("project"),
        case((or_(is_own, _model.account_id == account_id), _model.id)).label("model"),
        _kind().label("kind"),
    )
    query = (
        select(
            *keys,
            func.count(distinct(_meter.job_id)),
            func.sum(until_s - since_s),
            func.sum((until_s - since_s) * gpus),
            func.sum(_cost(until_s) - _cost(since_s)),
            func.sum(_fee(until_s) - _fee(since_s)),
        )
        .select_from(UsageMeter)
        .join(periods, and_(_meter.started_at < ends, until_s > since_s))
        .join(Job, _job.id == _meter.job_id)
        .outerjoin(Allocation, _is_of_run())
        .outerjoin(Node, _node.id == _held.node_id)
        .outerjoin(Region, _region.id == _node.region_id)
        .outerjoin(
            ArtifactUse,
            and_(_use.job_id == _meter.job_id, _use.role == ArtifactRole.MODEL.value),
        )
        .outerjoin(ARTIFACT_TABLES["models"], _model.id == _use.artifact_id)
        .where(or_(is_own, _region.account_id == account_id, _model.account_id == account_id))
        .group_by(*keys)
        .order_by(*keys)
        .limit(limit)
    )
    return [
        Consumption(*row[:5], *(int(number) for number in row[5:]))
        for row in session.execute(query)
    ]


def _is_of_run() -> Any:
    return and_(
        _held.job_id == _meter.job_id,
        _held.attempt == _meter.attempt,
        _held.worker == _meter.worker,
    )


def _kind() -> Any:
    """`federated`: with the model of another account; `public`: on machines of another account;
    `rented`: on machines of a cloud; else `own`."""
    return case(
        (_is_federated(), "federated"),
        (_region.account_id != _job.account_id, "public"),
        (_region.provider_kind.in_(cloud_kinds()), "rented"),
        else_="own",
    )


def _is_federated() -> Any:
    """Whether a job has the model of another account, and so is of its project's owner: whoever has
    created it is the owner of the model."""
    return _model.account_id != _job.account_id


def _fee(seconds: Any) -> Any:
    """As `cumulative_microcredits`."""
    return (2 * _meter.federated_microcredits_per_hour * seconds + HOUR_S) // (2 * HOUR_S)


def _cost(seconds: Any) -> Any:
    """As `cumulative_microcredits`."""
    return (2 * _meter.microcredits_per_hour * seconds + HOUR_S) // (2 * HOUR_S)
