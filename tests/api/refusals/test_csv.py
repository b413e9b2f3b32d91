"""Every CSV route × every text column × every character by which a spreadsheet begins a formula."""

import csv
import io
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from api.schemas.billing import StatementLine
from tests.api.http_server import Person, Site
from tests.api.openapi_document import DOCUMENT

BEGINNINGS = ("=", "+", "-", "@", "\t", "\r")
ROUTES = {"get_statement"}
TEXTS = [
    name for name, field in StatementLine.model_fields.items() if "str" in str(field.annotation)
]


def _answers_csv(operation: dict[str, Any]) -> bool:
    return any(
        "text/csv" in answer.get("content", {}) for answer in operation["responses"].values()
    )


def test_every_csv_route_and_every_column_is_known() -> None:
    operations = [each for path in DOCUMENT["paths"].values() for each in path.values()]
    assert {each["operationId"] for each in operations if _answers_csv(each)} == ROUTES
    subjects = {"project_id", "provider_id", "region_id", "job_id", "device_id"}
    assert set(TEXTS) == {"transaction_id", "kind", "description"} | subjects


def _column(name: str) -> str:
    return "id" if name == "transaction_id" else name


@pytest.mark.parametrize("beginning", BEGINNINGS)
async def test_no_text_is_run_as_a_formula(site: Site, ada: Person, beginning: str) -> None:
    formula = f"{beginning}cmd|' /C calc'!A0"
    name = f"account/{ada.account_id}/credits"
    site.write(tables.LedgerAccount(name=name, account_id=ada.account_id))
    for number, column in enumerate(TEXTS):
        values = {
            "id": new_id("trx"), "kind": "credits", "description": "credits", "job_id": "job-1",
            _column(column): f"{formula}{number}",
        }  # fmt: skip
        row = tables.LedgerTransaction(
            **values, business_key=f"credits/{number}", account_id=ada.account_id, details={},
            at=datetime.now(UTC),
        )  # fmt: skip
        leg = tables.LedgerPosting(
            transaction_id=row.id, leg=0, ledger_account=name, amount_microcredits=-5,
            balance_after_microcredits=-5,
        )  # fmt: skip
        site.write(row)
        site.write(leg)
    answer = await ada.get("/v1/statement", headers={"Accept": "text/csv"})
    lines = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert len(lines) == len(TEXTS)
    cells = {line[column] for line in lines for column in TEXTS}
    assert {f"'{formula}{number}" for number in range(len(TEXTS))} <= cells
    assert [cell for cell in cells if cell.startswith(BEGINNINGS)] == []
    assert {line["amount_microcredits"] for line in lines} == {"-5"}
