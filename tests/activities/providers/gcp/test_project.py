"""A provider's project as the workflows ask for it: by the key that its row refers to."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.db.session import Database
from activities.db.tables import Provider
from activities.providers.checks import forget_provider_key
from activities.providers.cloud_parts import (
    check_cloud,
    ensure_provider_resource,
    remove_provider_resource,
)
from activities.secrets.credentials import own_place, seal_credentials
from activities.settings import settings
from tests.activities.providers.gcp.keys import key_file
from tests.activities.rows import NOW, add_payer
from tests.doubles.gcp.double import GcpDouble
from tests.temporal_server import CHECKOUT
from workflows.contracts import errors
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind
from workflows.effects.providers import CheckProvider, ForgetProviderKey, ProviderResource

PROVIDER = "prv-1"


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def provider(gcp: GcpDouble, migrated: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """A provider whose row refers to a key of the double."""
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "cd" * 32)
    settings.cache_clear()
    give_key(migrated, key_file(gcp))
    return PROVIDER


def give_key(database: Database, content: str) -> None:
    with database.write() as session:
        found = session.get(Provider, PROVIDER)
        account_id = found.account_id if found else add_payer(session).id
        zone = own_place("gcp", PROVIDER)
        reference = seal_credentials(session, account_id, zone, content, NOW)
        row: dict[str, Any] = {"id": PROVIDER, "account_id": account_id, "created_at": NOW}
        row |= {"name": "cloud", "kind": "gcp", "checks": [], "updated_at": NOW}
        session.merge(Provider(**row, credentials=reference))


def checked() -> dict[str, Check]:
    command = CheckProvider(provider_id=PROVIDER, provider_kind=ProviderKind.GCP)
    found = asyncio.run(ActivityEnvironment().run(check_cloud, command)).checks
    return {check.name: check for check in found}


def asked(activity: Any, resource: str = "topic") -> Any:
    command = ProviderResource(
        provider_id=PROVIDER, provider_kind=ProviderKind.GCP, resource=resource
    )
    return asyncio.run(ActivityEnvironment().run(activity, command))


def test_a_provider_is_checked_by_the_key_that_its_row_refers_to(
    gcp: GcpDouble, migrated: Database, provider: str
) -> None:
    assert {check.status for check in checked().values()} == {"passed"}


def test_a_new_key_counts_at_once_and_the_old_one_may_be_deleted(
    gcp: GcpDouble, migrated: Database, provider: str
) -> None:
    checked()
    account = gcp.cloud.credentials.accounts[f"baseload@{gcp.project.id}.iam.gserviceaccount.com"]
    (old,) = account.keys
    give_key(migrated, key_file(gcp))
    gcp.cloud.credentials.revoke(old)
    assert checked()["key"].status == "passed"


def test_a_key_that_is_no_longer_where_it_was_is_a_failed_check(
    migrated: Database, provider: str
) -> None:
    for _ in range(2):
        ActivityEnvironment().run(forget_provider_key, ForgetProviderKey(provider_id=PROVIDER))
    found = checked()
    assert list(found) == ["key"]
    assert "store://providers/gcp/prv-1" in found["key"].detail


def test_a_google_that_does_not_answer_fails_no_check(gcp: GcpDouble, provider: str) -> None:
    gcp.cloud.faults.unreachable_for(60)
    with pytest.raises(ApplicationError, match="no answer") as failure:
        checked()
    assert failure.value.type == errors.UNAVAILABLE
    assert failure.value.type not in errors.NON_RETRYABLE


def test_a_part_is_made_and_removed_by_its_name(gcp: GcpDouble, provider: str) -> None:
    made = asked(ensure_provider_resource).resource
    assert (made.name, made.path in gcp.cloud.pubsub.topics) == ("topic", True)
    assert asked(remove_provider_resource).resource == made
    assert made.path not in gcp.cloud.pubsub.topics


def test_what_google_refuses_is_refused_for_good_and_in_its_words(
    gcp: GcpDouble, provider: str
) -> None:
    email = f"baseload@{gcp.project.id}.iam.gserviceaccount.com"
    gcp.project.take_away(email, "roles/logging.configWriter")
    with pytest.raises(ApplicationError, match=r"Required 'logging\.sinks\.get'") as failure:
        asked(ensure_provider_resource, "sink")
    assert failure.value.type in errors.NON_RETRYABLE


def test_nobody_pays_for_googles_libraries_before_they_are_used() -> None:
    program = (
        "import sys\nfrom workers.__main__ import server_of\n"
        "for kind in ('api', 'main', 'planning'): server_of(kind)\n"
        "heavy = ('google.auth', 'google.cloud', 'grpc', 'requests')\n"
        "print(*(each for each in heavy if each in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=CHECKOUT, check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip(), done.stderr.strip()) == (0, "", "")
