"""Usage: who used what of an account."""

from sqlmodel import Session

from activities.billing.consumption import consumption_of
from activities.billing.periods import Cut, Period
from api.schemas import usage as schemas
from api.schemas.usage import UsageKind

MOST_LINES = 5000


def usage(session: Session, account_id: str, period: Period, by: Cut) -> schemas.Usage:
    """Who used the machines, the projects and the models of an account, at most `MOST_LINES`."""
    found = consumption_of(session, account_id, period, by, MOST_LINES + 1)
    return schemas.Usage(
        account_id=account_id,
        begins_at=period[0],
        ends_at=period[1],
        by=by,
        items=[
            schemas.UsageLine(
                begins_at=each.begins_at,
                consumer_account_id=each.consumer_id,
                project_id=each.project_id,
                model_id=each.model_id,
                kind=UsageKind(each.kind),
                job_count=each.job_count,
                seconds=each.seconds,
                gpu_seconds=each.gpu_seconds,
                charged_microcredits=each.microcredits,
                federated_fee_microcredits=each.federated_fee_microcredits,
            )
            for each in found[:MOST_LINES]
        ],
        is_whole=len(found) <= MOST_LINES,
    )
