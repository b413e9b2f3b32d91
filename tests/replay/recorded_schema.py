"""The tables of a release as its code reads and writes them.

`python -m tests.replay.recorded_schema RELEASE` records those of today into
`schemas/RELEASE.json`: once for each release, and again only before it is published.
"""

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlmodel import SQLModel

from activities.db import tables  # noqa: F401 - what the metadata is of
from activities.db.instants import Instant

SCHEMAS = Path(__file__).parent / "schemas"
_TYPES: dict[str, Any] = {
    "BigInteger": sa.BigInteger,
    "Boolean": sa.Boolean,
    "DateTime": lambda: sa.DateTime(timezone=True),
    "Float": sa.Float,
    "Integer": sa.Integer,
    "JSON": sa.JSON,
    "LargeBinary": sa.LargeBinary,
    "String": sa.String,
    "Text": sa.Text,
}


def recorded(release: str) -> list[sa.Table]:
    """The tables of a release; the `info` of a column has the values that the release may write."""
    schema = json.loads((SCHEMAS / f"{release}.json").read_text())
    metadata = sa.MetaData()
    return [
        sa.Table(name, metadata, *(_column(**each) for each in columns))
        for name, columns in schema.items()
    ]


def _column(name: str, type: str, nullable: bool, values: Sequence[str] = ()) -> sa.Column[Any]:  # noqa: A002 - as recorded
    return sa.Column(name, _TYPES[type](), nullable=nullable, info={"values": values})


def record(release: str) -> Path:
    """Write the tables of this code; returns the file."""
    schema = {
        table.name: [_shown(table, column) for column in table.columns]
        for table in SQLModel.metadata.sorted_tables
    }
    SCHEMAS.mkdir(exist_ok=True)
    path = SCHEMAS / f"{release}.json"
    path.write_text(json.dumps(schema, indent=1) + "\n")
    return path


def _shown(table: sa.Table, column: sa.Column[Any]) -> dict[str, Any]:
    values = [
        value
        for constraint in table.constraints
        if isinstance(constraint, sa.CheckConstraint)
        and str(constraint.sqltext).startswith(f"{column.name} IN ")
        for value in re.findall(r"'([^']*)'", str(constraint.sqltext))
    ]
    return {
        "name": column.name,
        "type": _type_of(column),
        "nullable": bool(column.nullable),
        **({"values": values} if values else {}),
    }


def _type_of(column: sa.Column[Any]) -> str:
    """The name in `_TYPES` of a column's type, which may be one of ours or of SQLModel."""
    if isinstance(column.type, Instant):
        return "DateTime"
    names = [kind.__name__ for kind in type(column.type).__mro__]
    return "String" if "AutoString" in names else next(name for name in names if name in _TYPES)


if __name__ == "__main__":
    sys.stdout.write(f"{record(sys.argv[1])}\n")
