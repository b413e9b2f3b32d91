"""The schemas of join tokens, by which an account proves that a machine is its own."""

import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from api.schemas.base import RequestBody, ResourceId, ResponseBody

DAY_S = 86_400
_SECRET = re.compile(r"join_reg-[0-9a-z-]{1,40}_[A-Za-z0-9_-]{43}")


def _secret(text: str) -> str:
    if not _SECRET.fullmatch(text):
        raise ValueError("is a join token: join_reg-…, as `baseload node join-token` shows it")
    return text


JoinSecret = Annotated[str, Field(max_length=120), AfterValidator(_secret)]


class JoinTokenCreation(RequestBody):
    region_id: ResourceId
    expires_in_s: Annotated[int, Field(ge=60, le=7 * DAY_S)] = DAY_S
    """How long a machine can announce itself with the token for the first time."""


class JoinToken(ResponseBody):
    id: str
    region_id: str
    created_at: datetime
    expires_at: datetime
    ssh_public_key: str
    """The line of the region's key that the machine's authorized_keys must have.

    `deploy/node/join.sh` adds it.
    """


class NewJoinToken(JoinToken):
    secret: str
    """The token itself, `join_reg-…`, which is shown only in this answer.

    The first machine that announces itself with the token binds the token; later that machine
    alone announces itself with it, also after the token has expired.
    """
