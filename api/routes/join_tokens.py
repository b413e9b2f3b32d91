"""Join tokens: how an account proves that a machine is its own."""

from typing import Annotated

from fastapi import APIRouter

from api.changes import Change, changing
from api.schemas.join_tokens import JoinTokenCreation, NewJoinToken
from api.services import join_tokens

router = APIRouter(prefix="/v1/join-tokens", tags=["nodes"])
Writer = Annotated[Change, changing("nodes:write")]


@router.post("", status_code=201, operation_id="create_join_token")
async def create_join_token(asked: JoinTokenCreation, change: Writer) -> NewJoinToken:
    """Create a join token, with which one machine joins the region; only this answer has it.

    `deploy/node/join.sh` sends the token with the machine's announcement.
    """
    return await change.apply(
        NewJoinToken, lambda context: join_tokens.create_join_token(context, asked)
    )
