"""New artifacts: why there can be none, and their rows."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlmodel import Session, select

from activities.accounts.limits import refusal_of_more
from activities.accounts.stored_bytes import refusal_of_artifact
from activities.db.ids import new_id
from activities.db.tables import ArtifactRow, Project
from workflows.contracts.artifacts import ArtifactStatus, Source
from workflows.contracts.lifecycles import LifecycleNoun


@dataclass(frozen=True)
class NewArtifact:
    """An artifact that is asked for."""

    table: type[ArtifactRow]
    noun: LifecycleNoun
    project: Project
    name: str
    at: datetime


@dataclass(frozen=True)
class CreationRefusal:
    """Why an artifact cannot be made."""

    kind: Literal["conflict", "limit-reached", "storage-exhausted"]
    reason: str


def named(session: Session, new: NewArtifact) -> ArtifactRow | None:
    """The artifact of the project that has the name already."""
    same = select(new.table).where(
        new.table.project_id == new.project.id,
        new.table.name == new.name,
        new.table.status != ArtifactStatus.ARCHIVED,
    )
    return session.exec(same).first()


def refusal_of_new(session: Session, new: NewArtifact) -> CreationRefusal | None:
    """Why an artifact cannot be made in its project; None: it can."""
    if (found := named(session, new)) is not None:
        reason = f"{new.noun.name} {new.name}: is there already, {found.id}"
        return CreationRefusal("conflict", reason)
    account_id = new.project.account_id
    if (refusal := refusal_of_more(session, new.table, account_id, new.at, 1)) is not None:
        return CreationRefusal("limit-reached", refusal)
    if (refusal := refusal_of_artifact(session, account_id, 1)) is not None:
        return CreationRefusal("storage-exhausted", refusal)
    return None


def row_of_new(new: NewArtifact, creator: tuple[str, str], source: Source) -> ArtifactRow:
    """The row of an artifact whose content is then transferred from its source.

    creator: the ids of the user and of the account that make it.
    """
    return new.table(
        id=new_id(new.noun.prefix),
        account_id=new.project.account_id,
        project_id=new.project.id,
        name=new.name,
        creator_user_id=creator[0],
        creator_account_id=creator[1],
        source=source.model_dump(mode="json"),
        created_at=new.at,
        updated_at=new.at,
    )
