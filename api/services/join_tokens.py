"""Join tokens: creating them, and redeeming them for announcements."""

import secrets
from datetime import UTC, datetime, timedelta

from sqlmodel import select

from activities.db import tables
from activities.db.ids import new_id
from activities.nodes.join_tokens import removed_since
from activities.secrets.region_keys import region_key_line
from api.authorization import hash_of
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import join_tokens as schemas
from api.services.account_limits import check_limit
from api.services.lifecycles import GONE, wrong_state
from api.services.ownership import own
from workflows.rules.catalogue.providers import traits_of


def create_join_token(
    context: ChangeContext, asked: schemas.JoinTokenCreation
) -> schemas.NewJoinToken:
    """Create a join token of a region of own machines; it expires with the key that makes it.

    Raises: Problem `not-found`, when the region is not the account's; `conflict`, when the region
    is being removed; `invalid-request`, when the region is in a cloud; `limit-reached`.
    """
    region = own(context.session, tables.Region, asked.region_id, context.caller)
    if region.status in GONE:
        raise wrong_state("region", region, "there to take machines")
    if traits_of(region.provider_kind).is_cloud:
        rule = "is a region of machines you own; the machines of a cloud join by themselves"
        raise invalid(field_error("region_id", rule, asked.region_id))
    check_limit(context, tables.JoinToken)
    # The secret has 256 random bits, so nobody can guess it, and a plain hash is safe to store.
    secret = f"join_{region.id}_{secrets.token_urlsafe(32)}"
    latest = context.caller.expires_at or datetime.max.replace(tzinfo=UTC)
    row = tables.JoinToken(
        id=new_id("jtk"),
        account_id=context.caller.account_id,
        region_id=region.id,
        parent_key_id=context.caller.key_id,
        secret_sha256=hash_of(secret),
        created_at=context.now,
        expires_at=min(context.now + timedelta(seconds=asked.expires_in_s), latest),
    )
    context.session.add(row)
    return schemas.NewJoinToken(
        **row.model_dump(), secret=secret, ssh_public_key=region_key_line(region.id)
    )


def redeem(context: ChangeContext, secret: str, minion_id: str) -> tables.JoinToken:
    """The locked token of this secret, bound to the machine.

    Raises: Problem `unauthorized`, when the token is unknown, has expired unbound, is bound to
    another machine, or when its region or its node has been removed; the answer never says which.
    """
    query = select(tables.JoinToken).where(tables.JoinToken.secret_sha256 == hash_of(secret))
    row = context.session.exec(query.with_for_update()).first()
    if row is None or not _is_valid(context, row, minion_id):
        detail = "the join token is not valid for this machine: make a new one, and run join.sh"
        raise Problem("unauthorized", detail)
    row.minion_id = minion_id
    context.session.add(row)
    return row


def _is_valid(context: ChangeContext, row: tables.JoinToken, minion_id: str) -> bool:
    region = context.session.get_one(tables.Region, row.region_id)
    if region.status in GONE:
        return False
    if row.minion_id is None:
        return row.expires_at > context.now
    if row.minion_id != minion_id:
        return False
    is_removed = select(tables.JoinToken.id).where(tables.JoinToken.id == row.id, removed_since())
    return context.session.exec(is_removed).first() is None
