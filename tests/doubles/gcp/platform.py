"""Resource Manager, Service Usage, Cloud Billing and IAM: what a project is and may do."""

from __future__ import annotations

import base64
import json

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import rfc3339
from tests.doubles.gcp.credentials import Account
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.filters import HasEquals, keep
from tests.doubles.gcp.lists import page
from tests.doubles.gcp.project import SERVICES, Project

serves = Register()


@serves("cloudresourcemanager.projects.get")
def get_project(call: Call) -> Json:
    project = call.project
    return {
        "name": f"projects/{project.number}",
        "parent": "organizations/111111111111",
        "projectId": project.id,
        "state": project.state,
        "displayName": project.id,
        "createTime": rfc3339(project.created_at),
        "updateTime": rfc3339(project.created_at),
        "etag": 'W/"8e5c0e1f6a7b4c2d"',
    }


@serves("cloudresourcemanager.projects.testIamPermissions")
def project_permissions(call: Call) -> Json:
    """Which of the permissions the caller has: in the order asked, without the field if none."""
    asked = call.body.get("permissions", [])
    if any("*" in permission for permission in asked):
        raise RefusedError.invalid("Permissions with wildcards are not allowed.")
    held = [each for each in asked if call.project.allows(call.principal, each)]
    return {"permissions": held} if held else {}


@serves("cloudresourcemanager.projects.getIamPolicy")
def get_project_policy(call: Call) -> Json:
    bindings = [
        {"role": role, "members": sorted(members)}
        for role, members in sorted(call.project.bindings.items())
        if members
    ]
    return {"version": 1, "etag": etag(bindings), "bindings": bindings}


def etag(bindings: object) -> str:
    """Changes when the bindings do."""
    text = json.dumps(bindings, sort_keys=True)
    return base64.b64encode(hash(text).to_bytes(8, "big", signed=True)).decode()


@serves("serviceusage.services.list")
def list_services(call: Call) -> Json:
    """With a page size of more than 200 it is refused, as the real one does."""
    if int(call.get("pageSize", "50")) > 200:
        raise RefusedError.invalid("pageSize must be at most 200")
    states = [_service(call.project, name) for name in sorted(SERVICES)]
    return page(call, "services", keep(states, call.get("filter"), HasEquals()), "pageSize")


@serves("serviceusage.services.get")
def get_service(call: Call) -> Json:
    name = call["name"].rsplit("/", 1)[1]
    if name not in SERVICES:
        raise RefusedError(403, "forbidden", f"Not found or permission denied for service {name}.")
    return _service(call.project, name)


def _service(project: Project, name: str) -> Json:
    return {
        "name": f"projects/{project.number}/services/{name}",
        "config": {"name": name, "title": SERVICES[name]},
        "state": "ENABLED" if name in project.services else "DISABLED",
        "parent": f"projects/{project.number}",
    }


@serves("cloudbilling.projects.getBillingInfo")
def get_billing_info(call: Call) -> Json:
    project = call.project
    told: Json = {"name": f"projects/{project.id}/billingInfo", "projectId": project.id}
    if project.billing_account:
        told["billingAccountName"] = project.billing_account
    if project.billing_enabled and project.billing_account:
        told["billingEnabled"] = True
    return told


@serves("iam.projects.serviceAccounts.list")
def list_accounts(call: Call) -> Json:
    accounts = call.cloud.credentials.accounts.values()
    found = [_account(call.project, each) for each in accounts if each.project == call.project.id]
    return page(call, "accounts", found, "pageSize")


@serves("iam.projects.serviceAccounts.get")
def get_account(call: Call) -> Json:
    return _account(call.project, _found(call, call["name"]))


@serves("iam.projects.serviceAccounts.testIamPermissions")
def account_permissions(call: Call) -> Json:
    """Which of the permissions the caller has on one service account, or through the project."""
    account = _found(call, call["resource"])
    asked = call.body.get("permissions", [])
    held = [
        each for each in asked if call.project.allows(call.principal, each, account=account.email)
    ]
    return {"permissions": held} if held else {}


def _found(call: Call, name: str) -> Account:
    wanted = name.rsplit("/", 1)[1]
    for account in call.cloud.credentials.accounts.values():
        if wanted in (account.email, account.unique_id) and account.project == call.project.id:
            return account
    raise RefusedError(404, "notFound", f"Unknown service account {wanted}")


def _account(project: Project, account: Account) -> Json:
    told: Json = {
        "name": f"projects/{project.id}/serviceAccounts/{account.email}",
        "projectId": project.id,
        "uniqueId": account.unique_id,
        "email": account.email,
        "displayName": account.display_name,
        "etag": "MDEwMjE5MjA=",
        "oauth2ClientId": account.unique_id,
    }
    if account.disabled:
        told["disabled"] = True
    return told
