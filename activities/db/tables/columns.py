"""The parts of tables: names of constraints, kinds of columns, the rows of a lifecycle."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import (
    JSON,
    Column,
    Index,
    Text,
    text,
)
from sqlmodel import Field, SQLModel

from activities.db.instants import Instant

SQLModel.metadata.naming_convention = {
    "pk": "pk_%(table_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ix": "ix_%(table_name)s_%(column_0_name)s",
}


def json_column(*, nullable: bool = False) -> Any:
    """A column that holds JSON."""
    return Field(sa_column=Column(JSON, nullable=nullable))


def index_where(condition: str, name: str, *columns: str, unique: bool = False) -> Index:
    """A partial index of the rows for which the condition holds."""
    where = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=where, postgresql_where=where)


def one_of(column: str, values: type[StrEnum]) -> str:
    """The condition that a column holds one of these values."""
    return f"{column} IN ({', '.join(repr(value.value) for value in values)})"


class LifecycleRow(SQLModel):
    """The columns of every lifecycle row; `sequence` is the number of the last recorded step."""

    id: str = Field(primary_key=True)
    account_id: str = Field(foreign_key="accounts.id", index=True)
    name: str
    status: str = "new"
    status_reason: str | None = Field(default=None, sa_type=Text)
    sequence: int = 0
    recorded_run_id: str = ""
    recorded_history_length: int = 0
    """The workflow run that recorded the last step, and how long its history was then."""
    created_at: datetime = Field(sa_type=Instant)
    updated_at: datetime = Field(sa_type=Instant)


class RemovableRow(LifecycleRow):
    """The columns of a row whose removal may take long; they say which removal was accepted."""

    removal_requested_at: datetime | None = Field(default=None, sa_type=Instant)
    removal_force: bool = False
    removal_requested_by: str | None = None
    removal_reschedules: bool = False
    """Whether jobs on removed nodes begin again on other nodes."""
