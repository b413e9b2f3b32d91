"""The checks of a Google Cloud project. Each has a name, says what was found, and how to fix it.

A check that cannot run, because an API is not enabled or a role is missing, names the API or the
role; the other checks still run. Only when Google does not answer at all is there no result.
"""

import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.check_context import CheckContext
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
    """Run every check, in the order in which a person fixes the findings. Changes nothing.

    Raises: GoogleUnavailableError, when Google does not answer.
    """
    context = CheckContext(session)
    try:
        session.prove_key()
    except KeyRefusedError as refusal:
        page = f"{CONSOLE}/iam-admin/serviceaccounts?project={session.project_id}"
        fix = f"make a new key of the service account at {page} and give it to the provider"
        return (context.failed("key", str(refusal), fix),)
    context.checks.append(context.passed("key", f"{session.key.email} gets tokens"))
    for check in _CHECKS:
        context.checks += check(context)
    return tuple(context.checks)


def _apis(context: CheckContext) -> Iterator[Check]:
    """Check the APIs; one request lists all that are enabled."""
    try:
        context.enabled = frozenset(_enabled(context))
    except GoogleRefusedError as refusal:
        detail = f"the enabled APIs cannot be listed: {refusal.message}"
        yield context.failed("api-serviceusage", detail, context.switch_on("serviceusage"))
        return
    for api in APIS:
        if api in context.enabled:
            yield context.passed(f"api-{api}", "is enabled")
        else:
            yield context.failed(f"api-{api}", "is not enabled", context.switch_on(api))
    for api, why in USEFUL_APIS.items():
        if api not in context.enabled:
            detail = f"is not enabled: {why}"
            yield context.warning(f"api-{api}", detail, context.switch_on(api))


def _enabled(context: CheckContext) -> Iterator[str]:
    query = {"filter": "state:ENABLED", "pageSize": "200"}
    while True:
        page = context.session.ask(
            "GET", "serviceusage", f"{context.project_path}/services", query=query
        )
        for service in page.get("services", ()):
            yield str(service["config"]["name"]).removesuffix(".googleapis.com")
        if not page.get("nextPageToken"):
            return
        query["pageToken"] = page["nextPageToken"]


def _project(context: CheckContext) -> Iterator[Check]:
    home = f"{CONSOLE}/home/dashboard?project={context.project_id}"
    try:
        found = context.session.ask(
            "GET", "cloudresourcemanager", f"/v3/projects/{context.project_id}"
        )
    except GoogleRefusedError as refusal:
        yield _not_readable(context, "project", refusal, ("cloudresourcemanager", "roles/browser"))
        return
    context.number = str(found["name"]).rpartition("/")[2]
    context.created_at = _instant(found.get("createTime"))
    state = found.get("state")
    if state == "ACTIVE":
        yield context.passed("project", f"{context.project_id} ({context.number}) is active")
    else:
        fix = f"restore the project, or use another: {home}"
        yield context.failed("project", f"{context.project_id} is {state}, not ACTIVE", fix)


def _billing(context: CheckContext) -> Iterator[Check]:
    path = f"{context.project_path}/billingInfo"
    try:
        found = context.session.ask("GET", "cloudbilling", path)
    except GoogleRefusedError as refusal:
        yield _not_readable(context, "billing", refusal, ("cloudbilling", "roles/billing.viewer"))
        return
    account = found.get("billingAccountName") or "no billing account"
    if found.get("billingEnabled"):
        yield context.passed("billing", f"is enabled, on {account}")
        return
    fix = f"link a billing account: {CONSOLE}/billing/linkedaccount?project={context.project_id}"
    yield context.failed("billing", f"is off: the project has {account}", fix)


def _roles(context: CheckContext) -> Iterator[Check]:
    """Check all permissions that we use in one request; a role passes if it lacks none of them."""
    wanted = [each for _, permissions in ROLES.values() for each in permissions]
    wanted += [permission for permission, _ in USEFUL_ROLES.values()]
    path = f"/v3/projects/{context.project_id}:testIamPermissions"
    try:
        found = context.session.ask(
            "POST", "cloudresourcemanager", path, body={"permissions": wanted}
        )
    except GoogleRefusedError as refusal:
        yield _not_readable(context, "roles", refusal, ("cloudresourcemanager", "roles/browser"))
        return
    held = set(found.get("permissions", ()))
    for role, (title, permissions) in ROLES.items():
        missing = [each for each in permissions if each not in held]
        name = f"role-{role}"
        if missing:
            detail = f"{context.session.key.email} lacks {title}: {', '.join(missing)}"
            yield context.failed(name, detail, context.grant(f"roles/{role}"))
        else:
            yield context.passed(name, f"{title} is granted")
    for role, (permission, why) in USEFUL_ROLES.items():
        if permission not in held:
            detail = f"{context.session.key.email} lacks {permission}: {why}"
            yield context.warning(f"role-{role}", detail, context.grant(f"roles/{role}"))


def _compute_account(context: CheckContext) -> Iterator[Check]:
    """Check that the key may use the default service account.

    Our machines run without a service account, but Google requires this right to create them.
    """
    if not context.number or (context.enabled is not None and "iam" not in context.enabled):
        return
    name, account = (
        "compute-service-account",
        f"{context.number}-compute@developer.gserviceaccount.com",
    )
    path = f"{context.project_path}/serviceAccounts/{account}:testIamPermissions"
    act_as = {"permissions": ["iam.serviceAccounts.actAs"]}
    try:
        held = context.session.ask("POST", "iam", path, body=act_as).get("permissions")
    except GoogleRefusedError as refusal:
        page = f"{CONSOLE}/iam-admin/serviceaccounts?project={context.project_id}"
        fix = f"restore the Compute Engine default service account: {page}"
        yield context.failed(name, f"{account}: {refusal.message}", fix)
        return
    if held:
        yield context.passed(name, f"{account} may be used")
    else:
        fix = (
            f"gcloud iam service-accounts add-iam-policy-binding {account} "
            f"--project={context.project_id} --role=roles/iam.serviceAccountUser "
            f"--member=serviceAccount:{context.session.key.email}"
        )
        yield context.failed(name, f"{account} may not be used", fix)


def _gpus(context: CheckContext) -> Iterator[Check]:
    """Check the GPU quota of the whole project; while it is 0, no machine with a GPU is created."""
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    client = context.session.compute(compute_v1.ProjectsClient)
    page = f"{CONSOLE}/iam-admin/quotas?project={context.project_id}"
    try:
        with naming_request(f"quotas of {context.project_id}"):
            project = client.get(project=context.project_id, timeout=ANSWER_LIMIT_S, retry=None)
    except GoogleRefusedError as refusal:
        yield _not_readable(context, "gpus", refusal, ("compute", "roles/compute.admin"))
        return
    limits = {quota.metric: quota.limit for quota in project.quotas}
    metric = gcp_catalogue().quota_metrics.gpus_all_regions
    limit = limits.get(metric)
    if limit is None:
        detail = f"{metric} is not in Google's answer: whether GPUs are allowed is unknown"
        yield context.warning("gpus", detail, f"check {page}")
    elif limit > 0:
        yield context.passed("gpus", f"{metric} allows {limit:g}")
    else:
        detail = f"{metric} is 0: likely the limit of a free tier or trial account"
        fix = f"upgrade the billing account to a paid one, then ask for more: {page}"
        yield context.failed("gpus", detail, fix)


def _image(context: CheckContext) -> Iterator[Check]:
    """Check the image families, because Google retires families and machines then fail to start."""
    yield from _family(context, "image", settings().gcp_image, "BASELOAD_GCP_IMAGE")
    yield from _family(
        context, "plain-image", settings().gcp_plain_image, "BASELOAD_GCP_PLAIN_IMAGE"
    )


def _family(context: CheckContext, name: str, image: str, setting: str) -> Iterator[Check]:
    from google.cloud import compute_v1  # noqa: PLC0415

    found = _IMAGE_FAMILY.fullmatch(image)
    if found is None:
        return  # The setting names one image; the person who set it has chosen it.
    client = context.session.compute(compute_v1.ImagesClient)
    try:
        with naming_request(f"image {image}"):
            newest = client.get_from_family(
                project=found[1], family=found[2], timeout=ANSWER_LIMIT_S, retry=None
            )
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            fix = f"set {setting} to a family that exists, such as one of projects/{found[1]}"
            yield context.failed(name, f"{image}: does not exist any more", fix)
        else:
            yield _not_readable(context, name, refusal, ("compute", "roles/compute.admin"))
        return
    yield context.passed(name, f"machines boot {newest.name}")


def _pubsub_agent(context: CheckContext) -> Iterator[Check]:
    """Check the role of the Pub/Sub service agent, which only old projects may lack."""
    old = context.created_at is not None and context.created_at < AGENT_HAS_ITS_ROLE_SINCE
    if not old or not context.number:
        return
    agent = f"serviceAccount:service-{context.number}@gcp-sa-pubsub.iam.gserviceaccount.com"
    fix = context.grant(TOKEN_CREATOR, agent)
    made = f"the project was created before {AGENT_HAS_ITS_ROLE_SINCE:%Y-%m-%d}"
    path = f"/v3/projects/{context.project_id}:getIamPolicy"
    try:
        policy = context.session.ask("POST", "cloudresourcemanager", path, body={})
    except GoogleRefusedError:
        detail = f"{made}, and this key may not read whether {agent} has {TOKEN_CREATOR}"
        yield context.warning("pubsub-agent", detail, fix)
        return
    if any(agent in each["members"] for each in _bindings(policy, TOKEN_CREATOR)):
        yield context.passed("pubsub-agent", f"has {TOKEN_CREATOR}")
    else:
        yield context.failed("pubsub-agent", f"{made}: {agent} lacks {TOKEN_CREATOR}", fix)


def _bindings(policy: dict[str, Any], role: str) -> Iterator[dict[str, Any]]:
    return (each for each in policy.get("bindings", ()) if each.get("role") == role)


def _not_readable(
    context: CheckContext, name: str, refusal: GoogleRefusedError, needs: tuple[str, str]
) -> Check:
    """The result of a check that could not run: an API is not enabled, or a role is missing.

    Few keys may read billing, so an unreadable billing account is only a warning.
    """
    api, role = needs
    if refusal.is_switched_off:
        return context.failed(name, f"cannot be read: {refusal.message}", context.switch_on(api))
    if name == "billing":
        detail = f"cannot be read; the project can still be used: {refusal.message}"
        return context.warning(name, detail, context.grant(role))
    return context.failed(name, f"cannot be read: {refusal.message}", context.grant(role))


def _instant(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


_CHECKS: tuple[Callable[[CheckContext], Iterator[Check]], ...] = (
    _apis,
    _project,
    _billing,
    _roles,
    _compute_account,
    _gpus,
    _image,
    _pubsub_agent,
)
