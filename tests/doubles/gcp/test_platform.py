"""Keys, projects, services, billing and service accounts, asked as Google's own library asks."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import AuthorizedSession, Request
from google.oauth2 import service_account

from tests.doubles.gcp.double import GcpDouble, service_account_key
from tests.doubles.gcp.faults import Fault, FaultKind

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


def credentials(key: dict[str, Any]) -> service_account.Credentials:
    return service_account.Credentials.from_service_account_info(key, scopes=SCOPES)  # type: ignore[no-any-return,no-untyped-call]


def session(double: GcpDouble, **settings: Any) -> AuthorizedSession:
    key = service_account_key(double, **settings)
    return AuthorizedSession(credentials(key))  # type: ignore[no-untyped-call]


def test_a_key_that_was_revoked_or_never_was_ours_gets_no_token(gcp: GcpDouble) -> None:
    key, other = service_account_key(gcp), service_account_key(gcp)
    asked = credentials(key)
    asked.refresh(Request())  # type: ignore[no-untyped-call]
    assert str(asked.token).startswith("ya29.")
    with pytest.raises(RefreshError, match="Invalid JWT Signature"):
        credentials({**key, "private_key": other["private_key"]}).refresh(Request())  # type: ignore[no-untyped-call]
    gcp.cloud.credentials.revoke(key["private_key_id"])
    with pytest.raises(RefreshError, match="invalid_grant"):
        credentials(key).refresh(Request())  # type: ignore[no-untyped-call]


def test_a_project_tells_what_it_is_and_what_the_caller_may(gcp: GcpDouble) -> None:
    asks = session(gcp, roles=("roles/compute.admin",))
    project = asks.get(f"{gcp.url}/v3/projects/{gcp.project.id}").json()
    assert (project["projectId"], project["state"]) == (gcp.project.id, "ACTIVE")
    wanted = ["compute.instances.create", "pubsub.topics.create"]
    url = f"{gcp.url}/v3/projects/{gcp.project.id}:testIamPermissions"
    held = asks.post(url, json={"permissions": wanted}).json()
    assert held == {"permissions": ["compute.instances.create"]}
    assert asks.get(f"{gcp.url}/v3/projects/not-mine").status_code == 403


def test_services_billing_and_accounts_follow_what_the_project_has(gcp: GcpDouble) -> None:
    asks = session(gcp)
    gcp.project.services.discard("pubsub.googleapis.com")
    url = f"{gcp.url}/v1/projects/{gcp.project.id}"
    listed = asks.get(f"{url}/services?filter=state:ENABLED&pageSize=200").json()["services"]
    names = {each["config"]["name"] for each in listed}
    assert "compute.googleapis.com" in names
    assert "pubsub.googleapis.com" not in names
    assert asks.get(f"{url}/billingInfo").json()["billingEnabled"] is True
    gcp.project.billing_enabled = False
    assert "billingEnabled" not in asks.get(f"{url}/billingInfo").json()
    accounts = asks.get(f"{url}/serviceAccounts").json()["accounts"]
    emails = {each["email"] for each in accounts}
    assert gcp.project.compute_account in emails
    account = f"{url}/serviceAccounts/{gcp.project.compute_account}"
    act_as = {"permissions": ["iam.serviceAccounts.actAs"]}
    assert asks.post(f"{account}:testIamPermissions", json=act_as).json() == act_as


def test_without_a_token_or_without_the_api_nothing_is_answered(gcp: GcpDouble) -> None:
    asks = session(gcp)
    url = f"{gcp.url}/v1/projects/{gcp.project.id}/billingInfo"
    assert requests.get(url, timeout=10).status_code == 401
    gcp.project.services.discard("cloudbilling.googleapis.com")
    refused = asks.get(url)
    assert refused.status_code == 403
    assert refused.json()["error"]["details"][0]["reason"] == "SERVICE_DISABLED"
    gcp.project.services.add("cloudbilling.googleapis.com")
    key = asks.credentials
    assert requests.get(url, headers={"Authorization": f"Bearer {key.token}"}, timeout=10).ok
    gcp.cloud.credentials.accounts[key.service_account_email].disabled = True
    with pytest.raises(RefreshError, match="account not found"):
        asks.get(url)


def test_what_google_does_not_know_is_refused_and_remembered(gcp: GcpDouble) -> None:
    asks = session(gcp)
    url = f"{gcp.url}/v3/projects/{gcp.project.id}"
    assert asks.get(f"{url}?verbose=true").status_code == 400
    assert asks.post(f"{url}:testIamPermissions", json={"permission": []}).status_code == 400
    assert asks.get(f"{gcp.url}/v3/projects:everything").status_code == 404
    assert len(gcp.violations) == 3
    assert "'permission' was unexpected" in gcp.violations[1]
    gcp.violations.clear()


def test_a_reply_is_lost_before_or_after_as_scripted(gcp: GcpDouble) -> None:
    asks = session(gcp)
    url = f"{gcp.url}/v1/projects/{gcp.project.id}/billingInfo"
    gcp.cloud.faults.add(Fault(FaultKind.LOST_REPLY, "cloudbilling.*"))
    gcp.cloud.faults.add(Fault(FaultKind.RATE_LIMIT, "cloudbilling.*", every=2))
    with pytest.raises(OSError, match="Connection"):
        asks.get(url)
    assert [asks.get(url).status_code for _ in range(3)] == [200, 429, 200]
    assert gcp.cloud.faults.count() == {"lost_reply": 1, "rate_limit": 1}


def test_the_newer_gpus_have_their_quotas_in_families(gcp: GcpDouble) -> None:
    gcp.project.limits["us-east4"] = {"family:NVIDIA_H100": 3.0}
    asks = session(gcp, roles=("roles/cloudquotas.viewer",))
    services = f"{gcp.url}/v1/projects/{gcp.project.id}/locations/global/services"
    infos = f"{services}/compute.googleapis.com/quotaInfos"
    found = asks.get(f"{infos}/GPUS-PER-GPU-FAMILY-per-project-region").json()["dimensionsInfos"]
    wanted = {"gpu_family": "NVIDIA_H100", "region": "us-east4"}
    assert [each["details"] for each in found if each["dimensions"] == wanted] == [{"value": "3"}]
    assert session(gcp, account="weak").get(infos).status_code == 403
