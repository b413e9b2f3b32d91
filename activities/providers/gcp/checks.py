"""Everything that a project at Google must have, each with its own name, what was found and a fix.

What cannot be asked because the API for it is off, or the role is missing, says so and which; the
rest is looked at all the same. Only when Google does not answer at all is nothing said.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.check_context import Looked
from activities.providers.gcp.errors import GoogleRefusedError, KeyRefusedError, naming_request
from activities.providers.gcp.requirements import (
    AGENT_HAS_ITS_ROLE_SINCE,
    APIS,
    CONSOLE,
    ROLES,
    TOKEN_CREATOR,
    USEFUL_APIS,
    USEFUL_ROLES,
)
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession
from activities.settings import settings
from workflows.contracts.providers import Check

_IMAGE_FAMILY = re.compile(r"projects/([^/]+)/global/images/family/([^/]+)")


def check_project(session: GoogleSession) -> tuple[Check, ...]:
    """Every check, in the order in which a person mends them. Changes nothing.

    Raises: GoogleUnavailableError, when Google does not answer.
    """
    looked = Looked(session)
    try:
        session.prove_key()
    except KeyRefusedError as refusal:
        page = f"{CONSOLE}/iam-admin/serviceaccounts?project={session.project_id}"
        fix = f"make a new key of the service account at {page} and give it to the provider"
        return (looked.failed("key", str(refusal), fix),)
    looked.checks.append(looked.passed("key", f"{session.key.email} gets tokens"))
    for look in _CHECKS:
        looked.checks += look(looked)
    return tuple(looked.checks)


def _apis(looked: Looked) -> Iterator[Check]:
    """One request lists all that is on."""
    try:
        looked.enabled = frozenset(_enabled(looked))
    except GoogleRefusedError as refusal:
        detail = f"nobody can tell which APIs are on: {refusal.message}"
        yield looked.failed("api-serviceusage", detail, looked.switch_on("serviceusage"))
        return
    for api in APIS:
        if api in looked.enabled:
            yield looked.passed(f"api-{api}", "is enabled")
        else:
            yield looked.failed(f"api-{api}", "is not enabled", looked.switch_on(api))
    for api, why in USEFUL_APIS.items():
        if api not in looked.enabled:
            detail = f"is not enabled: {why}"
            yield looked.warning(f"api-{api}", detail, looked.switch_on(api))


def _enabled(looked: Looked) -> Iterator[str]:
    query = {"filter": "state:ENABLED", "pageSize": "200"}
    while True:
        page = looked.session.ask(
            "GET", "serviceusage", f"{looked.project_path}/services", query=query
        )
        for service in page.get("services", ()):
            yield str(service["config"]["name"]).removesuffix(".googleapis.com")
        if not page.get("nextPageToken"):
            return
        query["pageToken"] = page["nextPageToken"]


def _project(looked: Looked) -> Iterator[Check]:
    home = f"{CONSOLE}/home/dashboard?project={looked.project_id}"
    try:
        found = looked.session.ask(
            "GET", "cloudresourcemanager", f"/v3/projects/{looked.project_id}"
        )
    except GoogleRefusedError as refusal:
        yield _unseen(looked, "project", refusal, ("cloudresourcemanager", "roles/browser"))
        return
    looked.number = str(found["name"]).rpartition("/")[2]
    looked.created_at = _instant(found.get("createTime"))
    state = found.get("state")
    if state == "ACTIVE":
        yield looked.passed("project", f"{looked.project_id} ({looked.number}) is active")
    else:
        fix = f"restore the project, or use another: {home}"
        yield looked.failed("project", f"{looked.project_id} is {state}, not ACTIVE", fix)


def _billing(looked: Looked) -> Iterator[Check]:
    path = f"{looked.project_path}/billingInfo"
    try:
        found = looked.session.ask("GET", "cloudbilling", path)
    except GoogleRefusedError as refusal:
        yield _unseen(looked, "billing", refusal, ("cloudbilling", "roles/billing.viewer"))
        return
    account = found.get("billingAccountName") or "no billing account"
    if found.get("billingEnabled"):
        yield looked.passed("billing", f"is enabled, on {account}")
        return
    fix = f"link a billing account: {CONSOLE}/billing/linkedaccount?project={looked.project_id}"
    yield looked.failed("billing", f"is off: the project has {account}", fix)


def _roles(looked: Looked) -> Iterator[Check]:
    """The permissions that we use, asked for all at once; a role is had when all of its are."""
    wanted = [each for _, permissions in ROLES.values() for each in permissions]
    wanted += [permission for permission, _ in USEFUL_ROLES.values()]
    path = f"/v3/projects/{looked.project_id}:testIamPermissions"
    try:
        found = looked.session.ask(
            "POST", "cloudresourcemanager", path, body={"permissions": wanted}
        )
    except GoogleRefusedError as refusal:
        yield _unseen(looked, "roles", refusal, ("cloudresourcemanager", "roles/browser"))
        return
    held = set(found.get("permissions", ()))
    for role, (title, permissions) in ROLES.items():
        missing = [each for each in permissions if each not in held]
        name = f"role-{role}"
        if missing:
            detail = f"{looked.session.key.email} lacks {title}: {', '.join(missing)}"
            yield looked.failed(name, detail, looked.grant(f"roles/{role}"))
        else:
            yield looked.passed(name, f"{title} is granted")
    for role, (permission, why) in USEFUL_ROLES.items():
        if permission not in held:
            detail = f"{looked.session.key.email} lacks {permission}: {why}"
            yield looked.warning(f"role-{role}", detail, looked.grant(f"roles/{role}"))


def _compute_account(looked: Looked) -> Iterator[Check]:
    """Machines run without rights of their own, but Google asks for the right to use it."""
    if not looked.number or (looked.enabled is not None and "iam" not in looked.enabled):
        return
    name, account = (
        "compute-service-account",
        f"{looked.number}-compute@developer.gserviceaccount.com",
    )
    path = f"{looked.project_path}/serviceAccounts/{account}:testIamPermissions"
    act_as = {"permissions": ["iam.serviceAccounts.actAs"]}
    try:
        held = looked.session.ask("POST", "iam", path, body=act_as).get("permissions")
    except GoogleRefusedError as refusal:
        page = f"{CONSOLE}/iam-admin/serviceaccounts?project={looked.project_id}"
        fix = f"restore the Compute Engine default service account: {page}"
        yield looked.failed(name, f"{account}: {refusal.message}", fix)
        return
    if held:
        yield looked.passed(name, f"{account} may be used")
    else:
        fix = (
            f"gcloud iam service-accounts add-iam-policy-binding {account} "
            f"--project={looked.project_id} --role=roles/iam.serviceAccountUser "
            f"--member=serviceAccount:{looked.session.key.email}"
        )
        yield looked.failed(name, f"{account} may not be used", fix)


def _gpus(looked: Looked) -> Iterator[Check]:
    """All GPUs of the project together; with none granted nothing with a GPU can be made."""
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    client = looked.session.compute(compute_v1.ProjectsClient)
    page = f"{CONSOLE}/iam-admin/quotas?project={looked.project_id}"
    try:
        with naming_request(f"quotas of {looked.project_id}"):
            project = client.get(project=looked.project_id, timeout=ANSWER_LIMIT_S, retry=None)
    except GoogleRefusedError as refusal:
        yield _unseen(looked, "gpus", refusal, ("compute", "roles/compute.admin"))
        return
    limits = {quota.metric: quota.limit for quota in project.quotas}
    metric = gcp_catalogue().quota_metrics.gpus_all_regions
    limit = limits.get(metric)
    if limit is None:
        detail = f"{metric} was not told: nobody knows whether GPUs are allowed"
        yield looked.warning("gpus", detail, f"look at {page}")
    elif limit > 0:
        yield looked.passed("gpus", f"{metric} allows {limit:g}")
    else:
        detail = f"{metric} is 0: likely the limit of a free tier or trial account"
        fix = f"upgrade the billing account to a paid one, then ask for more: {page}"
        yield looked.failed("gpus", detail, fix)


def _image(looked: Looked) -> Iterator[Check]:
    """Families of images are retired; better told now than by the first machine."""
    yield from _family(looked, "image", settings().gcp_image, "BASELOAD_GCP_IMAGE")
    yield from _family(
        looked, "plain-image", settings().gcp_plain_image, "BASELOAD_GCP_PLAIN_IMAGE"
    )


def _family(looked: Looked, name: str, image: str, setting: str) -> Iterator[Check]:
    from google.cloud import compute_v1  # noqa: PLC0415

    found = _IMAGE_FAMILY.fullmatch(image)
    if found is None:
        return  # one image, which whoever has set it has looked at
    client = looked.session.compute(compute_v1.ImagesClient)
    try:
        with naming_request(f"image {image}"):
            newest = client.get_from_family(
                project=found[1], family=found[2], timeout=ANSWER_LIMIT_S, retry=None
            )
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            fix = f"set {setting} to a family that there is, such as of projects/{found[1]}"
            yield looked.failed(name, f"{image}: is there no more", fix)
        else:
            yield _unseen(looked, name, refusal, ("compute", "roles/compute.admin"))
        return
    yield looked.passed(name, f"machines boot {newest.name}")


def _pubsub_agent(looked: Looked) -> Iterator[Check]:
    """Of old projects alone."""
    old = looked.created_at is not None and looked.created_at < AGENT_HAS_ITS_ROLE_SINCE
    if not old or not looked.number:
        return
    agent = f"serviceAccount:service-{looked.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
    fix = looked.grant(TOKEN_CREATOR, agent)
    made = f"the project was made before {AGENT_HAS_ITS_ROLE_SINCE:%Y-%m-%d}"
    path = f"/v3/projects/{looked.project_id}:getIamPolicy"
    try:
        policy = looked.session.ask("POST", "cloudresourcemanager", path, body={})
    except GoogleRefusedError:
        detail = f"{made}, and this key may not see whether {agent} has {TOKEN_CREATOR}"
        yield looked.warning("pubsub-agent", detail, fix)
        return
    if any(agent in each["members"] for each in _bindings(policy, TOKEN_CREATOR)):
        yield looked.passed("pubsub-agent", f"has {TOKEN_CREATOR}")
    else:
        yield looked.failed("pubsub-agent", f"{made}: {agent} lacks {TOKEN_CREATOR}", fix)


def _bindings(policy: dict[str, Any], role: str) -> Iterator[dict[str, Any]]:
    return (each for each in policy.get("bindings", ()) if each.get("role") == role)


def _unseen(
    looked: Looked, name: str, refusal: GoogleRefusedError, needs: tuple[str, str]
) -> Check:
    """For what could not be looked at: by an API that is off, or a role that is missing.

    Billing may be seen by few: it is no reason to refuse a project.
    """
    api, role = needs
    if refusal.is_switched_off:
        return looked.failed(name, f"cannot be seen: {refusal.message}", looked.switch_on(api))
    if name == "billing":
        detail = f"cannot be seen, which is no hindrance: {refusal.message}"
        return looked.warning(name, detail, looked.grant(role))
    return looked.failed(name, f"cannot be seen: {refusal.message}", looked.grant(role))


def _instant(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


_CHECKS: tuple[Callable[[Looked], Iterator[Check]], ...] = (
    _apis,
    _project,
    _billing,
    _roles,
    _compute_account,
    _gpus,
    _image,
    _pubsub_agent,
)
