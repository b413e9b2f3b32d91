"""Enabling a project at Google: each thing that it lacks is told by its own name, with the fix."""

import time

import pytest

from activities.providers.gcp.checks import check_project
from activities.providers.gcp.errors import GoogleUnavailableError
from activities.providers.gcp.requirements import ROLES
from activities.providers.gcp.session import GoogleSession
from activities.settings import settings
from tests.activities.providers.gcp.keys import session_with
from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.double import GcpDouble
from workflows.contracts.providers import Check

DAY_S = 86_400.0


def found(session: GoogleSession) -> dict[str, Check]:
    checks = check_project(session)
    assert len({check.name for check in checks}) == len(checks)
    return {check.name: check for check in checks}


def failed(session: GoogleSession) -> dict[str, Check]:
    return {name: one for name, one in found(session).items() if one.status == "failed"}


def test_a_project_with_all_that_it_needs_passes_every_check(google: GoogleSession) -> None:
    checks = found(google)
    assert {check.status for check in checks.values()} == {"passed"}
    assert set(checks) >= {
        "key", "project", "billing", "gpus", "image", "compute-service-account",
        "api-compute", "api-pubsub", "api-logging", "api-cloudresourcemanager", "api-cloudbilling",
        *(f"role-{role}" for role in ROLES),
    }  # fmt: skip


def test_a_key_that_was_deleted_is_told_at_once_and_alone(gcp: GcpDouble) -> None:
    session = session_with(gcp)
    gcp.cloud.credentials.revoke(session.key.document["private_key_id"])
    checks = found(session)
    assert list(checks) == ["key"]
    assert checks["key"].status == "failed"
    assert "invalid_grant" in checks["key"].detail
    assert f"serviceaccounts?project={gcp.project.id}" in checks["key"].fix


@pytest.mark.parametrize("api", ["compute", "pubsub", "logging", "cloudbilling"])
def test_an_api_that_is_off_is_named_with_the_link_that_switches_it_on(
    gcp: GcpDouble, google: GoogleSession, api: str
) -> None:
    gcp.project.services.discard(f"{api}.googleapis.com")
    missing = failed(google)[f"api-{api}"]
    assert missing.detail == "is not enabled"
    assert missing.fix == (
        "https://console.cloud.google.com/apis/library/"
        f"{api}.googleapis.com?project={gcp.project.id}"
    )


def test_without_the_resource_manager_the_rest_is_looked_at_all_the_same(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.project.services.discard("cloudresourcemanager.googleapis.com")
    checks = found(google)
    for name in ("api-cloudresourcemanager", "project", "roles"):
        assert checks[name].status == "failed"
        assert "cloudresourcemanager.googleapis.com" in checks[name].fix
    assert checks["billing"].status == "passed"
    assert checks["gpus"].status == "passed"


def test_an_api_that_only_helps_is_a_warning(gcp: GcpDouble, google: GoogleSession) -> None:
    gcp.project.services -= {"cloudquotas.googleapis.com", "iam.googleapis.com"}
    checks = found(google)
    assert checks["api-cloudquotas"].status == checks["api-iam"].status == "warning"
    assert "H100" in checks["api-cloudquotas"].detail
    assert not failed(google)


@pytest.mark.parametrize("role", PROVIDER_ROLES)
def test_a_role_that_is_missing_is_named_with_the_command_that_grants_it(
    gcp: GcpDouble, role: str
) -> None:
    others = tuple(each for each in PROVIDER_ROLES if each != role)
    session = session_with(gcp, account="weak", roles=(*others, "roles/browser", "roles/viewer"))
    short = role.removeprefix("roles/")
    missing = failed(session)[f"role-{short}"]
    assert ROLES[short][0] in missing.detail
    assert f"--role={role}" in missing.fix
    assert session.key.email in missing.fix


def test_a_role_that_only_helps_is_a_warning(gcp: GcpDouble) -> None:
    session = session_with(gcp, account="plain", roles=PROVIDER_ROLES)
    helps = found(session)["role-cloudquotas.viewer"]
    assert (helps.status, "H100" in helps.detail) == ("warning", True)
    assert "--role=roles/cloudquotas.viewer" in helps.fix


def test_billing_that_is_off_is_told(gcp: GcpDouble, google: GoogleSession) -> None:
    gcp.project.billing_enabled = False
    off = failed(google)["billing"]
    assert "is off" in off.detail
    assert "billing/linkedaccount" in off.fix


def test_a_project_that_is_being_deleted_is_told(gcp: GcpDouble, google: GoogleSession) -> None:
    gcp.project.state = "DELETE_REQUESTED"
    assert "DELETE_REQUESTED" in failed(google)["project"].detail


def test_gpus_that_are_not_allowed_are_told_as_the_likely_limit_of_a_free_tier(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.project.limits[""] = {"GPUS_ALL_REGIONS": 0.0}
    none = failed(google)["gpus"]
    assert "free tier" in none.detail
    assert "paid" in none.fix


def test_an_image_family_that_was_retired_is_told_before_a_machine_needs_it(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.cloud.image_families.clear()
    gone = failed(google)["image"]
    assert settings().gcp_image in gone.detail
    assert "BASELOAD_GCP_IMAGE" in gone.fix


def test_the_compute_service_account_must_be_usable(gcp: GcpDouble, google: GoogleSession) -> None:
    del gcp.cloud.credentials.accounts[gcp.project.compute_account]
    gone = failed(google)["compute-service-account"]
    assert gcp.project.compute_account in gone.detail


def test_an_old_project_needs_a_role_for_its_pubsub_agent(gcp: GcpDouble) -> None:
    gcp.project.created_at = time.time() - 10 * 365 * DAY_S
    plain = session_with(gcp)
    assert found(plain)["pubsub-agent"].status == "warning"
    roles = (*PROVIDER_ROLES, "roles/resourcemanager.projectIamAdmin")
    seeing = session_with(gcp, account="seeing", roles=roles)
    missing = failed(seeing)["pubsub-agent"]
    assert "serviceAccountTokenCreator" in missing.fix
    assert gcp.project.pubsub_agent in missing.fix
    gcp.project.grant(gcp.project.pubsub_agent, "roles/iam.serviceAccountTokenCreator")
    assert found(seeing)["pubsub-agent"].status == "passed"


def test_nothing_is_said_of_a_google_that_does_not_answer(
    gcp: GcpDouble, google: GoogleSession
) -> None:
    gcp.cloud.faults.unreachable_for(60)
    with pytest.raises(GoogleUnavailableError, match="token for"):
        check_project(google)


def test_nothing_secret_is_in_what_is_told(gcp: GcpDouble) -> None:
    session = session_with(gcp, account="weak", roles=())
    told = "".join(check.model_dump_json() for check in check_project(session))
    assert "PRIVATE KEY" not in told
    assert str(session.key.document["private_key_id"]) not in told
