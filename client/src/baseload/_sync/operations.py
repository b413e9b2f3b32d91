# Written by client/generate.py: change _async/operations.py instead.
"""Every operation of the API that answers with JSON, one method each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from baseload import models
from baseload._sync.transport import Transport
from baseload.calls import Call, segment

M = TypeVar("M", bound=BaseModel)


def _sent(body: BaseModel) -> Any:
    return body.model_dump(mode="json", exclude_unset=True)


class Operations:
    """The API as methods, named as in its OpenAPI document.

    Raises, all of them: ApiError when refused, UnreachableError when nothing answers.
    """

    transport: Transport

    def _ask(self, model: type[M], call: Call) -> M:
        return model.model_validate_json((self.transport.send(call)).content)

    def get_health(self) -> models.Health:
        """The process answers."""
        return self._ask(models.Health, Call("GET", "/healthz"))

    def get_readiness(self) -> models.Readiness:
        """Whether the database and Temporal answer; 503 when one of them does not."""
        return self._ask(models.Readiness, Call("GET", "/readyz"))

    def get_platform(self) -> models.Platform:
        """The key by which nodes know whose runs they have."""
        return self._ask(models.Platform, Call("GET", "/v1/platform"))

    def list_accounts(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.AccountPage:
        """List Accounts."""
        return self._ask(
            models.AccountPage, Call("GET", "/v1/accounts", query={"limit": limit, "after": after})
        )

    def create_account(self, body: models.AccountCreation) -> models.Account:
        """Create an account with its owner and its Personal project."""
        return self._ask(models.Account, Call("POST", "/v1/accounts", body=_sent(body)))

    def get_account(self, account_id: str) -> models.Account:
        """Get Account."""
        return self._ask(models.Account, Call("GET", f"/v1/accounts/{segment(account_id)}"))

    def change_account(self, account_id: str, body: models.AccountChange) -> models.Account:
        """Change Account."""
        return self._ask(
            models.Account, Call("PATCH", f"/v1/accounts/{segment(account_id)}", body=_sent(body))
        )

    def remove_account(self, account_id: str) -> models.Account:
        """Remove an account of which nothing runs or is kept, and whose balance is 0."""
        return self._ask(models.Account, Call("DELETE", f"/v1/accounts/{segment(account_id)}"))

    def grant_credits(self, account_id: str, body: models.CreditGrant) -> models.Transaction:
        """Give an account credits."""
        return self._ask(
            models.Transaction,
            Call("POST", f"/v1/accounts/{segment(account_id)}/credits", body=_sent(body)),
        )

    def record_purchase(self, account_id: str, body: models.Purchase) -> models.Transaction:
        """Record a payment for credits, of at least 25; the same reference gives them once."""
        return self._ask(
            models.Transaction,
            Call("POST", f"/v1/accounts/{segment(account_id)}/purchases", body=_sent(body)),
        )

    def get_own_account(self) -> models.Account:
        """The account of the key, or the account that an administrator acts for."""
        return self._ask(models.Account, Call("GET", "/v1/account"))

    def change_own_account(self, body: models.OwnAccountChange) -> models.Account:
        """Change Own Account."""
        return self._ask(models.Account, Call("PATCH", "/v1/account", body=_sent(body)))

    def list_users(self, *, limit: int | None = None, after: str | None = None) -> models.UserPage:
        """The account's own users, and those who have accepted an invitation to it."""
        return self._ask(
            models.UserPage, Call("GET", "/v1/users", query={"limit": limit, "after": after})
        )

    def create_user(self, body: models.UserCreation) -> models.User:
        """Create User."""
        return self._ask(models.User, Call("POST", "/v1/users", body=_sent(body)))

    def change_user(self, user_id: str, body: models.UserChange) -> models.User:
        """Change the role of a user in the account, at once for all of the user's keys."""
        return self._ask(
            models.User, Call("PATCH", f"/v1/users/{segment(user_id)}", body=_sent(body))
        )

    def remove_user(self, user_id: str) -> models.User:
        """Remove an invited user from the account; the user's keys there are revoked."""
        return self._ask(models.User, Call("DELETE", f"/v1/users/{segment(user_id)}"))

    def list_api_keys(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.ApiKeyPage:
        """The account's API keys that are not revoked, without their secrets, which are not
        stored."""
        return self._ask(
            models.ApiKeyPage, Call("GET", "/v1/api-keys", query={"limit": limit, "after": after})
        )

    def create_api_key(self, body: models.ApiKeyCreation) -> models.NewApiKey:
        """Create an API key; only this answer has its secret."""
        return self._ask(models.NewApiKey, Call("POST", "/v1/api-keys", body=_sent(body)))

    def revoke_api_key(self, key_id: str, *, cascade: bool | None = None) -> models.ApiKey:
        """Revoke an API key immediately and permanently, with all keys that were made with it."""
        return self._ask(
            models.ApiKey,
            Call("DELETE", f"/v1/api-keys/{segment(key_id)}", query={"cascade": cascade}),
        )

    def list_invitations(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.InvitationPage:
        """The account's invitations, without their tokens, which are not stored."""
        return self._ask(
            models.InvitationPage,
            Call("GET", "/v1/invitations", query={"limit": limit, "after": after}),
        )

    def create_invitation(self, body: models.InvitationCreation) -> models.NewInvitation:
        """Invite a person for 7 days; only this answer has the token, which you pass on."""
        return self._ask(models.NewInvitation, Call("POST", "/v1/invitations", body=_sent(body)))

    def accept_invitation(
        self, invitation_id: str, body: models.Acceptance
    ) -> models.AcceptedInvitation:
        """Accept an invitation, with a key of the invited person, whose address the token
        proves."""
        return self._ask(
            models.AcceptedInvitation,
            Call("POST", f"/v1/invitations/{segment(invitation_id)}/accept", body=_sent(body)),
        )

    def withdraw_invitation(self, invitation_id: str) -> models.Invitation:
        """Withdraw an invitation that nobody has accepted."""
        return self._ask(
            models.Invitation, Call("DELETE", f"/v1/invitations/{segment(invitation_id)}")
        )

    def list_memberships(self) -> models.Memberships:
        """The accounts, and the projects of others, that the caller's user belongs to."""
        return self._ask(models.Memberships, Call("GET", "/v1/memberships"))

    def leave_account(self, account_id: str) -> models.AccountMembership:
        """Leave another account; the user's keys there are revoked."""
        return self._ask(
            models.AccountMembership, Call("DELETE", f"/v1/memberships/{segment(account_id)}")
        )

    def list_projects(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.ProjectPage:
        """The account's projects, and those that its user is a member of."""
        return self._ask(
            models.ProjectPage, Call("GET", "/v1/projects", query={"limit": limit, "after": after})
        )

    def create_project(self, body: models.ProjectCreation) -> models.Project:
        """Create Project."""
        return self._ask(models.Project, Call("POST", "/v1/projects", body=_sent(body)))

    def get_project(self, project_id: str) -> models.Project:
        """A project of the account, or one that its user is a member of."""
        return self._ask(models.Project, Call("GET", f"/v1/projects/{segment(project_id)}"))

    def change_project(self, project_id: str, body: models.ProjectChange) -> models.Project:
        """Change a project of the account's, but for the Personal project."""
        return self._ask(
            models.Project, Call("PATCH", f"/v1/projects/{segment(project_id)}", body=_sent(body))
        )

    def remove_project(self, project_id: str) -> models.Project:
        """Remove an empty project; what is in it refuses its removal, by name."""
        return self._ask(models.Project, Call("DELETE", f"/v1/projects/{segment(project_id)}"))

    def list_project_secrets(
        self, project_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.ProjectSecretPage:
        """Names of the project's secrets; their values are never shown."""
        return self._ask(
            models.ProjectSecretPage,
            Call(
                "GET",
                f"/v1/projects/{segment(project_id)}/secrets",
                query={"limit": limit, "after": after},
            ),
        )

    def store_project_secret(
        self, project_id: str, body: models.ProjectSecretCreation
    ) -> models.ProjectSecret:
        """Store a secret for the project's jobs; a secret of the same name is replaced."""
        return self._ask(
            models.ProjectSecret,
            Call("POST", f"/v1/projects/{segment(project_id)}/secrets", body=_sent(body)),
        )

    def remove_project_secret(self, project_id: str, name: str) -> models.ProjectSecret:
        """Remove Project Secret."""
        return self._ask(
            models.ProjectSecret,
            Call("DELETE", f"/v1/projects/{segment(project_id)}/secrets/{segment(name)}"),
        )

    def list_members(
        self, project_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.MemberPage:
        """The users of other accounts who may use the project."""
        return self._ask(
            models.MemberPage,
            Call(
                "GET",
                f"/v1/projects/{segment(project_id)}/members",
                query={"limit": limit, "after": after},
            ),
        )

    def leave_project(self, project_id: str) -> models.ProjectMembership:
        """Leave a project of another account."""
        return self._ask(
            models.ProjectMembership,
            Call("DELETE", f"/v1/projects/{segment(project_id)}/members/me"),
        )

    def change_member(
        self, project_id: str, user_id: str, body: models.MemberChange
    ) -> models.Member:
        """Change what a member may do; the new permissions replace the earlier ones."""
        return self._ask(
            models.Member,
            Call(
                "PATCH",
                f"/v1/projects/{segment(project_id)}/members/{segment(user_id)}",
                body=_sent(body),
            ),
        )

    def remove_member(self, project_id: str, user_id: str) -> models.Member:
        """Remove a member, who has no access any more from then on."""
        return self._ask(
            models.Member,
            Call("DELETE", f"/v1/projects/{segment(project_id)}/members/{segment(user_id)}"),
        )

    def list_providers(
        self, *, status: str | None = None, limit: int | None = None, after: str | None = None
    ) -> models.ProviderPage:
        """The account's providers; archived ones only when asked for by status."""
        return self._ask(
            models.ProviderPage,
            Call("GET", "/v1/providers", query={"status": status, "limit": limit, "after": after}),
        )

    def enable_provider(self, body: models.ProviderCreation) -> models.Provider:
        """Enable a provider; `status` says when it is ready, `checks` why it is not."""
        return self._ask(models.Provider, Call("POST", "/v1/providers", body=_sent(body)))

    def get_provider(self, provider_id: str) -> models.Provider:
        """Get Provider."""
        return self._ask(models.Provider, Call("GET", f"/v1/providers/{segment(provider_id)}"))

    def change_provider(self, provider_id: str, body: models.ProviderChange) -> models.Provider:
        """Change a provider's key, its preferred credits, or whether its usage fee is waived."""
        return self._ask(
            models.Provider,
            Call("PATCH", f"/v1/providers/{segment(provider_id)}", body=_sent(body)),
        )

    def remove_provider(self, provider_id: str, *, force: bool | None = None) -> models.Provider:
        """Remove a provider; a provider with regions only with `force`."""
        return self._ask(
            models.Provider,
            Call("DELETE", f"/v1/providers/{segment(provider_id)}", query={"force": force}),
        )

    def recheck_provider(self, provider_id: str) -> models.Provider:
        """Run all checks of a provider again."""
        return self._ask(
            models.Provider, Call("POST", f"/v1/providers/{segment(provider_id)}/recheck")
        )

    def list_quotas(
        self, *, provider_id: str, cloud_region: str, gpu_count: int | None = None
    ) -> models.QuotaList:
        """Limits, usage and runnable jobs by GPU type in a cloud region, read from the cloud
        now."""
        return self._ask(
            models.QuotaList,
            Call(
                "GET",
                "/v1/quotas",
                query={
                    "provider_id": provider_id,
                    "cloud_region": cloud_region,
                    "gpu_count": gpu_count,
                },
            ),
        )

    def list_regions(
        self, *, status: str | None = None, limit: int | None = None, after: str | None = None
    ) -> models.RegionPage:
        """The account's regions; archived ones only when asked for by status."""
        return self._ask(
            models.RegionPage,
            Call("GET", "/v1/regions", query={"status": status, "limit": limit, "after": after}),
        )

    def create_region(self, body: models.RegionCreation) -> models.Region:
        """Create a region of a provider that is ready; a cloud region comes with a storage
        node."""
        return self._ask(models.Region, Call("POST", "/v1/regions", body=_sent(body)))

    def get_region(self, region_id: str) -> models.Region:
        """Get Region."""
        return self._ask(models.Region, Call("GET", f"/v1/regions/{segment(region_id)}"))

    def change_region(self, region_id: str, body: models.RegionChange) -> models.Region:
        """Change what other accounts may do in a region, or the worker of a region without
        nodes."""
        return self._ask(
            models.Region, Call("PATCH", f"/v1/regions/{segment(region_id)}", body=_sent(body))
        )

    def remove_region(self, region_id: str, *, force: bool | None = None) -> models.Region:
        """Remove a region; a region with nodes only with `force`."""
        return self._ask(
            models.Region,
            Call("DELETE", f"/v1/regions/{segment(region_id)}", query={"force": force}),
        )

    def list_region_quotas(
        self, region_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.RegionQuotaPage:
        """The cloud's quotas for the region, read now; empty in a region of machines you own."""
        return self._ask(
            models.RegionQuotaPage,
            Call(
                "GET",
                f"/v1/regions/{segment(region_id)}/quotas",
                query={"limit": limit, "after": after},
            ),
        )

    def list_nodes(
        self,
        *,
        region_id: str | None = None,
        status: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.NodePage:
        """The account's nodes; archived ones only when asked for by status."""
        return self._ask(
            models.NodePage,
            Call(
                "GET",
                "/v1/nodes",
                query={"region_id": region_id, "status": status, "limit": limit, "after": after},
            ),
        )

    def add_node(self, body: models.NodeCreation) -> models.Node:
        """Add a machine as a node, by its minion id or, in a cloud, by its GPUs."""
        return self._ask(models.Node, Call("POST", "/v1/nodes", body=_sent(body)))

    def get_node(self, node_id: str) -> models.Node:
        """Get Node."""
        return self._ask(models.Node, Call("GET", f"/v1/nodes/{segment(node_id)}"))

    def change_node(self, node_id: str, body: models.NodeChange) -> models.Node:
        """Switch the idle workload of a node on or off."""
        return self._ask(
            models.Node, Call("PATCH", f"/v1/nodes/{segment(node_id)}", body=_sent(body))
        )

    def remove_node(self, node_id: str, *, force: bool | None = None) -> models.Node:
        """Remove a node; a node with jobs only with `force`."""
        return self._ask(
            models.Node, Call("DELETE", f"/v1/nodes/{segment(node_id)}", query={"force": force})
        )

    def activate_node(self, node_id: str) -> models.Node:
        """Activate a node in maintenance, so that it takes jobs."""
        return self._ask(models.Node, Call("POST", f"/v1/nodes/{segment(node_id)}/activate"))

    def maintain_node(self, node_id: str) -> models.Node:
        """Put a node in maintenance: it takes no new jobs, and its running jobs go on."""
        return self._ask(models.Node, Call("POST", f"/v1/nodes/{segment(node_id)}/maintenance"))

    def reboot_node(self, node_id: str, *, force: bool | None = None) -> models.Node:
        """Reboot a node's machine; a node with jobs only with `force`, which ends the jobs."""
        return self._ask(
            models.Node,
            Call("POST", f"/v1/nodes/{segment(node_id)}/reboot", query={"force": force}),
        )

    def replace_node(self, node_id: str, body: models.NodeReplacement | None = None) -> models.Node:
        """Replace a region's storage node by one on another machine, which is filled from it
        first."""
        return self._ask(
            models.Node,
            Call("POST", f"/v1/nodes/{segment(node_id)}/replace", body=body and _sent(body)),
        )

    def create_join_token(self, body: models.JoinTokenCreation) -> models.NewJoinToken:
        """Create a join token, with which one machine joins the region; only this answer has
        it."""
        return self._ask(models.NewJoinToken, Call("POST", "/v1/join-tokens", body=_sent(body)))

    def announce_machine(self, body: models.AnnouncementCreation) -> models.AnnouncementReceipt:
        """Announce the address of a machine, with a join token instead of an API key."""
        return self._ask(
            models.AnnouncementReceipt, Call("POST", "/v1/announcements", body=_sent(body))
        )

    def list_leases(
        self,
        *,
        status: str | None = None,
        provider_id: str | None = None,
        live: bool | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.LeasePage:
        """The account's leases; with `live`, only those whose machine may still cost money."""
        return self._ask(
            models.LeasePage,
            Call(
                "GET",
                "/v1/leases",
                query={
                    "status": status,
                    "provider_id": provider_id,
                    "live": live,
                    "limit": limit,
                    "after": after,
                },
            ),
        )

    def get_lease(self, lease_id: str) -> models.Lease:
        """Get Lease."""
        return self._ask(models.Lease, Call("GET", f"/v1/leases/{segment(lease_id)}"))

    def kill_lease(self, lease_id: str) -> models.Lease:
        """Terminate the lease's machine, also while it runs a job; `released` says that it is
        gone."""
        return self._ask(models.Lease, Call("DELETE", f"/v1/leases/{segment(lease_id)}"))

    def list_provider_machines(self, provider_id: str) -> models.ProviderMachineList:
        """Every machine with our ownership label that the provider lists; `held` says: by a
        lease."""
        return self._ask(
            models.ProviderMachineList,
            Call("GET", f"/v1/providers/{segment(provider_id)}/machines"),
        )

    def end_provider_machine(
        self, provider_id: str, name: str, *, zone: str
    ) -> models.MachineEnding:
        """Terminate a machine, held by a lease or orphaned; it is gone when no longer listed."""
        return self._ask(
            models.MachineEnding,
            Call(
                "DELETE",
                f"/v1/providers/{segment(provider_id)}/machines/{segment(name)}",
                query={"zone": zone},
            ),
        )

    def reconcile(self, body: models.ReconciliationRequest) -> models.Reconciliation:
        """Compare the machines of the account's providers with the leases, and end what is left
        over."""
        return self._ask(models.Reconciliation, Call("POST", "/v1/reconcile", body=_sent(body)))

    def list_uploads(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.UploadPage:
        """List Uploads."""
        return self._ask(
            models.UploadPage, Call("GET", "/v1/uploads", query={"limit": limit, "after": after})
        )

    def create_upload(self, file: Path) -> models.Upload:
        """Upload a tar.gz. An archive that is broken, too large or leaves its folder is
        refused."""
        return self._ask(models.Upload, Call("POST", "/v1/uploads", file=file))

    def get_upload(self, upload_id: str) -> models.Upload:
        """Get Upload."""
        return self._ask(models.Upload, Call("GET", f"/v1/uploads/{segment(upload_id)}"))

    def list_offers(
        self,
        *,
        gpus: str | None = None,
        cpu_count: int | None = None,
        memory_gib: float | None = None,
        disk_size_gb: int | None = None,
        max_price: int | None = None,
        region_id: str | None = None,
        project_id: str | None = None,
        workers: int | None = None,
        providers: Sequence[str] | None = None,
        only_owned: bool | None = None,
        spot: str | None = None,
    ) -> models.OfferList:
        """Offers for such a job, best first, and each refusal with its reason."""
        return self._ask(
            models.OfferList,
            Call(
                "GET",
                "/v1/offers",
                query={
                    "gpus": gpus,
                    "cpu_count": cpu_count,
                    "memory_gib": memory_gib,
                    "disk_size_gb": disk_size_gb,
                    "max_price": max_price,
                    "region_id": region_id,
                    "project_id": project_id,
                    "workers": workers,
                    "providers": providers,
                    "only_owned": only_owned,
                    "spot": spot,
                },
            ),
        )

    def list_jobs(
        self,
        *,
        status: Sequence[str] | None = None,
        project_id: str | None = None,
        label: Sequence[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.JobPage:
        """Jobs of the account and of projects that its user is a member of; archived ones by
        status."""
        return self._ask(
            models.JobPage,
            Call(
                "GET",
                "/v1/jobs",
                query={
                    "status": status,
                    "project_id": project_id,
                    "label": label,
                    "limit": limit,
                    "after": after,
                },
            ),
        )

    def submit_job(self, body: models.JobSubmission) -> models.Job:
        """Submit a job. The answer to a wrong document names all of its mistakes."""
        return self._ask(models.Job, Call("POST", "/v1/jobs", body=_sent(body)))

    def preview_job(self, body: models.JobSubmission) -> models.JobPreview:
        """Check a job and say where it would go now, without submitting it: nothing is
        written."""
        return self._ask(models.JobPreview, Call("POST", "/v1/jobs/preview", body=_sent(body)))

    def submit_job_array(self, body: models.JobSubmission) -> models.JobArray:
        """Submit all jobs of an array, a document with `array`, in one transaction."""
        return self._ask(models.JobArray, Call("POST", "/v1/jobs/arrays", body=_sent(body)))

    def kill_all_jobs(self) -> models.JobsKilled:
        """Cancel every open job of the account."""
        return self._ask(models.JobsKilled, Call("POST", "/v1/jobs/kill-all"))

    def get_job(self, job_id: str) -> models.Job:
        """Get Job."""
        return self._ask(models.Job, Call("GET", f"/v1/jobs/{segment(job_id)}"))

    def remove_job(self, job_id: str) -> models.Job:
        """Remove a job that has ended, with its log and output; its charges stay."""
        return self._ask(models.Job, Call("DELETE", f"/v1/jobs/{segment(job_id)}"))

    def stop_job(self, job_id: str) -> models.Job:
        """End the command of a notebook or endpoint, which can be started again."""
        return self._ask(models.Job, Call("POST", f"/v1/jobs/{segment(job_id)}/stop"))

    def start_job(self, job_id: str) -> models.Job:
        """Start a stopped notebook or endpoint again, or a job at once that pauses before a
        retry."""
        return self._ask(models.Job, Call("POST", f"/v1/jobs/{segment(job_id)}/start"))

    def resubmit_job(self, job_id: str) -> models.Job:
        """Submit the same job again, in any status, as a new job with the same code and
        variables."""
        return self._ask(models.Job, Call("POST", f"/v1/jobs/{segment(job_id)}/resubmit"))

    def cancel_job(self, job_id: str, *, discard: bool | None = None) -> models.Job:
        """Cancel a job, whatever its status is; a canceled job cannot be started again."""
        return self._ask(
            models.Job,
            Call("POST", f"/v1/jobs/{segment(job_id)}/cancel", query={"discard": discard}),
        )

    def get_job_charges(self, job_id: str) -> models.JobCharges:
        """Get Job Charges."""
        return self._ask(models.JobCharges, Call("GET", f"/v1/jobs/{segment(job_id)}/charges"))

    def get_job_measurements(
        self, job_id: str, *, attempt: int | None = None, worker: int | None = None
    ) -> models.JobMeasurements:
        """What the node, its supervisor and the control plane have measured, and what is
        posted."""
        return self._ask(
            models.JobMeasurements,
            Call(
                "GET",
                f"/v1/jobs/{segment(job_id)}/measurements",
                query={"attempt": attempt, "worker": worker},
            ),
        )

    def get_job_placement(self, job_id: str) -> models.JobPlacement:
        """Why the job waits, or on which nodes it was placed."""
        return self._ask(models.JobPlacement, Call("GET", f"/v1/jobs/{segment(job_id)}/placement"))

    def list_federated_jobs(
        self,
        *,
        status: Sequence[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
        project_id: str | None = None,
        model_id: str | None = None,
        consumer_account_id: str | None = None,
    ) -> models.FederatedJobPage:
        """The federated jobs that the account has created, and those that it is the consumer
        of."""
        return self._ask(
            models.FederatedJobPage,
            Call(
                "GET",
                "/v1/federated-jobs",
                query={
                    "status": status,
                    "limit": limit,
                    "after": after,
                    "project_id": project_id,
                    "model_id": model_id,
                    "consumer_account_id": consumer_account_id,
                },
            ),
        )

    def create_federated_job(self, body: models.JobSubmission) -> models.FederatedJob:
        """Run a model of the account in the project of another one, at that one's data."""
        return self._ask(models.FederatedJob, Call("POST", "/v1/federated-jobs", body=_sent(body)))

    def get_federated_job(self, federated_id: str) -> models.FederatedJob:
        """A federated job, for both parties."""
        return self._ask(
            models.FederatedJob, Call("GET", f"/v1/federated-jobs/{segment(federated_id)}")
        )

    def cancel_federated_job(self, federated_id: str) -> models.FederatedJob:
        """End a federated job, whichever party asks; its model is withdrawn after that."""
        return self._ask(
            models.FederatedJob, Call("POST", f"/v1/federated-jobs/{segment(federated_id)}/cancel")
        )

    def list_datasets(
        self,
        *,
        status: str | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.ArtifactPage:
        """Those of the account and of projects that its user is a member of; archived by
        status."""
        return self._ask(
            models.ArtifactPage,
            Call(
                "GET",
                "/v1/datasets",
                query={"status": status, "project_id": project_id, "limit": limit, "after": after},
            ),
        )

    def create_dataset(self, body: models.ArtifactCreation) -> models.Artifact:
        """`status` says when it is ready; its events say how far the transfer has come."""
        return self._ask(models.Artifact, Call("POST", "/v1/datasets", body=_sent(body)))

    def get_dataset(self, artifact_id: str) -> models.Artifact:
        """Get a dataset."""
        return self._ask(models.Artifact, Call("GET", f"/v1/datasets/{segment(artifact_id)}"))

    def remove_dataset(self, artifact_id: str) -> models.Artifact:
        """Remove it with its files; refused while jobs use it, which the answer names."""
        return self._ask(models.Artifact, Call("DELETE", f"/v1/datasets/{segment(artifact_id)}"))

    def list_dataset_parts(self, artifact_id: str) -> models.ArtifactParts:
        """What an upload that was interrupted need not send again."""
        return self._ask(
            models.ArtifactParts, Call("GET", f"/v1/datasets/{segment(artifact_id)}/parts")
        )

    def retry_dataset(self, artifact_id: str) -> models.Artifact:
        """Try a transfer again that has failed; it goes on after what is stored."""
        return self._ask(
            models.Artifact, Call("POST", f"/v1/datasets/{segment(artifact_id)}/retry")
        )

    def send_dataset_part(
        self, artifact_id: str, index: str, file: Path, *, sha256: str
    ) -> models.ArtifactPart:
        """Send 64 MiB of an uncompressed tar, or what is left at its end; a part may come
        again."""
        return self._ask(
            models.ArtifactPart,
            Call(
                "PUT",
                f"/v1/datasets/{segment(artifact_id)}/parts/{segment(index)}",
                query={"sha256": sha256},
                file=file,
            ),
        )

    def complete_dataset(self, artifact_id: str, body: models.UploadCompletion) -> models.Artifact:
        """Say that all parts are there; its files are checked, and it is ready or failed then."""
        return self._ask(
            models.Artifact,
            Call("POST", f"/v1/datasets/{segment(artifact_id)}/complete", body=_sent(body)),
        )

    def list_models(
        self,
        *,
        status: str | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.ArtifactPage:
        """Those of the account and of projects that its user is a member of; archived by
        status."""
        return self._ask(
            models.ArtifactPage,
            Call(
                "GET",
                "/v1/models",
                query={"status": status, "project_id": project_id, "limit": limit, "after": after},
            ),
        )

    def create_model(self, body: models.ArtifactCreation) -> models.Artifact:
        """`status` says when it is ready; its events say how far the transfer has come."""
        return self._ask(models.Artifact, Call("POST", "/v1/models", body=_sent(body)))

    def get_model(self, artifact_id: str) -> models.Artifact:
        """Get a model."""
        return self._ask(models.Artifact, Call("GET", f"/v1/models/{segment(artifact_id)}"))

    def remove_model(self, artifact_id: str) -> models.Artifact:
        """Remove it with its files; refused while jobs use it, which the answer names."""
        return self._ask(models.Artifact, Call("DELETE", f"/v1/models/{segment(artifact_id)}"))

    def list_model_parts(self, artifact_id: str) -> models.ArtifactParts:
        """What an upload that was interrupted need not send again."""
        return self._ask(
            models.ArtifactParts, Call("GET", f"/v1/models/{segment(artifact_id)}/parts")
        )

    def retry_model(self, artifact_id: str) -> models.Artifact:
        """Try a transfer again that has failed; it goes on after what is stored."""
        return self._ask(models.Artifact, Call("POST", f"/v1/models/{segment(artifact_id)}/retry"))

    def send_model_part(
        self, artifact_id: str, index: str, file: Path, *, sha256: str
    ) -> models.ArtifactPart:
        """Send 64 MiB of an uncompressed tar, or what is left at its end; a part may come
        again."""
        return self._ask(
            models.ArtifactPart,
            Call(
                "PUT",
                f"/v1/models/{segment(artifact_id)}/parts/{segment(index)}",
                query={"sha256": sha256},
                file=file,
            ),
        )

    def complete_model(self, artifact_id: str, body: models.UploadCompletion) -> models.Artifact:
        """Say that all parts are there; its files are checked, and it is ready or failed then."""
        return self._ask(
            models.Artifact,
            Call("POST", f"/v1/models/{segment(artifact_id)}/complete", body=_sent(body)),
        )

    def list_checkpoints(
        self,
        *,
        status: str | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.ArtifactPage:
        """Those of the account and of projects that its user is a member of; archived by
        status."""
        return self._ask(
            models.ArtifactPage,
            Call(
                "GET",
                "/v1/checkpoints",
                query={"status": status, "project_id": project_id, "limit": limit, "after": after},
            ),
        )

    def create_checkpoint(self, body: models.ArtifactCreation) -> models.Artifact:
        """`status` says when it is ready; its events say how far the transfer has come."""
        return self._ask(models.Artifact, Call("POST", "/v1/checkpoints", body=_sent(body)))

    def get_checkpoint(self, artifact_id: str) -> models.Artifact:
        """Get a checkpoint."""
        return self._ask(models.Artifact, Call("GET", f"/v1/checkpoints/{segment(artifact_id)}"))

    def remove_checkpoint(self, artifact_id: str) -> models.Artifact:
        """Remove it with its files; refused while jobs use it, which the answer names."""
        return self._ask(models.Artifact, Call("DELETE", f"/v1/checkpoints/{segment(artifact_id)}"))

    def list_checkpoint_parts(self, artifact_id: str) -> models.ArtifactParts:
        """What an upload that was interrupted need not send again."""
        return self._ask(
            models.ArtifactParts, Call("GET", f"/v1/checkpoints/{segment(artifact_id)}/parts")
        )

    def retry_checkpoint(self, artifact_id: str) -> models.Artifact:
        """Try a transfer again that has failed; it goes on after what is stored."""
        return self._ask(
            models.Artifact, Call("POST", f"/v1/checkpoints/{segment(artifact_id)}/retry")
        )

    def send_checkpoint_part(
        self, artifact_id: str, index: str, file: Path, *, sha256: str
    ) -> models.ArtifactPart:
        """Send 64 MiB of an uncompressed tar, or what is left at its end; a part may come
        again."""
        return self._ask(
            models.ArtifactPart,
            Call(
                "PUT",
                f"/v1/checkpoints/{segment(artifact_id)}/parts/{segment(index)}",
                query={"sha256": sha256},
                file=file,
            ),
        )

    def complete_checkpoint(
        self, artifact_id: str, body: models.UploadCompletion
    ) -> models.Artifact:
        """Say that all parts are there; its files are checked, and it is ready or failed then."""
        return self._ask(
            models.Artifact,
            Call("POST", f"/v1/checkpoints/{segment(artifact_id)}/complete", body=_sent(body)),
        )

    def list_volumes(
        self,
        *,
        status: str | None = None,
        project_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.ArtifactPage:
        """Those of the account and of projects that its user is a member of; archived by
        status."""
        return self._ask(
            models.ArtifactPage,
            Call(
                "GET",
                "/v1/volumes",
                query={"status": status, "project_id": project_id, "limit": limit, "after": after},
            ),
        )

    def create_volume(self, body: models.ArtifactCreation) -> models.Artifact:
        """`status` says when it is ready; its events say how far the transfer has come."""
        return self._ask(models.Artifact, Call("POST", "/v1/volumes", body=_sent(body)))

    def get_volume(self, artifact_id: str) -> models.Artifact:
        """Get a volume."""
        return self._ask(models.Artifact, Call("GET", f"/v1/volumes/{segment(artifact_id)}"))

    def remove_volume(self, artifact_id: str) -> models.Artifact:
        """Remove it with its files; refused while jobs use it, which the answer names."""
        return self._ask(models.Artifact, Call("DELETE", f"/v1/volumes/{segment(artifact_id)}"))

    def list_volume_parts(self, artifact_id: str) -> models.ArtifactParts:
        """What an upload that was interrupted need not send again."""
        return self._ask(
            models.ArtifactParts, Call("GET", f"/v1/volumes/{segment(artifact_id)}/parts")
        )

    def retry_volume(self, artifact_id: str) -> models.Artifact:
        """Try a transfer again that has failed; it goes on after what is stored."""
        return self._ask(models.Artifact, Call("POST", f"/v1/volumes/{segment(artifact_id)}/retry"))

    def send_volume_part(
        self, artifact_id: str, index: str, file: Path, *, sha256: str
    ) -> models.ArtifactPart:
        """Send 64 MiB of an uncompressed tar, or what is left at its end; a part may come
        again."""
        return self._ask(
            models.ArtifactPart,
            Call(
                "PUT",
                f"/v1/volumes/{segment(artifact_id)}/parts/{segment(index)}",
                query={"sha256": sha256},
                file=file,
            ),
        )

    def complete_volume(self, artifact_id: str, body: models.UploadCompletion) -> models.Artifact:
        """Say that all parts are there; its files are checked, and it is ready or failed then."""
        return self._ask(
            models.Artifact,
            Call("POST", f"/v1/volumes/{segment(artifact_id)}/complete", body=_sent(body)),
        )

    def list_third_party_keys(
        self, project_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.ThirdPartyKeyPage:
        """The types of the project's third-party keys, when each was set and by whom; never a
        key."""
        return self._ask(
            models.ThirdPartyKeyPage,
            Call(
                "GET",
                f"/v1/projects/{segment(project_id)}/credentials",
                query={"limit": limit, "after": after},
            ),
        )

    def set_third_party_key(
        self, project_id: str, body: models.ThirdPartyKeySetting
    ) -> models.ThirdPartyKey:
        """Set the project's key of one type, in place of an earlier one; nobody can read it
        again."""
        return self._ask(
            models.ThirdPartyKey,
            Call("POST", f"/v1/projects/{segment(project_id)}/credentials", body=_sent(body)),
        )

    def remove_third_party_key(self, project_id: str, key_type: str) -> models.ThirdPartyKey:
        """Remove a key; sources and jobs that need it and have not begun then fail."""
        return self._ask(
            models.ThirdPartyKey,
            Call("DELETE", f"/v1/projects/{segment(project_id)}/credentials/{segment(key_type)}"),
        )

    def create_job_link(self, job_id: str, *, worker: int | None = None) -> models.JobLink:
        """A link for a browser to what a running job serves at its port; good once and soon."""
        return self._ask(
            models.JobLink,
            Call("POST", f"/v1/jobs/{segment(job_id)}/link", query={"worker": worker}),
        )

    def get_utilisation(self) -> models.Utilisation:
        """The jobs that run and the account's nodes, with what they use of CPUs, memory and
        GPUs."""
        return self._ask(models.Utilisation, Call("GET", "/v1/utilisation"))

    def list_data_progress(self, *, job_id: Sequence[str] | None = None) -> models.DataProgressList:
        """How much of jobs' data has come to their nodes, how fast, and what is left."""
        return self._ask(
            models.DataProgressList, Call("GET", "/v1/data-progress", query={"job_id": job_id})
        )

    def list_transactions(
        self,
        *,
        job_id: str | None = None,
        kind: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.TransactionPage:
        """Ledger transactions of the account, newest first."""
        return self._ask(
            models.TransactionPage,
            Call(
                "GET",
                "/v1/transactions",
                query={"job_id": job_id, "kind": kind, "limit": limit, "after": after},
            ),
        )

    def get_transaction(self, transaction_id: str) -> models.Transaction:
        """One ledger transaction of the account, with its postings."""
        return self._ask(
            models.Transaction, Call("GET", f"/v1/transactions/{segment(transaction_id)}")
        )

    def reverse_transaction(self, transaction_id: str, body: models.Reversal) -> models.Transaction:
        """Take a transaction back by a new one with the opposite postings; once, however often
        asked."""
        return self._ask(
            models.Transaction,
            Call("POST", f"/v1/transactions/{segment(transaction_id)}/reversal", body=_sent(body)),
        )

    def get_statement(
        self,
        *,
        begins_at: datetime | None = None,
        ends_at: datetime | None = None,
        project_id: str | None = None,
        provider_id: str | None = None,
        region_id: str | None = None,
        job_id: str | None = None,
        device_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.Statement:
        """Movements and balances of at most 366 days, by default the last 30; CSV if accepted."""
        return self._ask(
            models.Statement,
            Call(
                "GET",
                "/v1/statement",
                query={
                    "begins_at": begins_at,
                    "ends_at": ends_at,
                    "project_id": project_id,
                    "provider_id": provider_id,
                    "region_id": region_id,
                    "job_id": job_id,
                    "device_id": device_id,
                    "limit": limit,
                    "after": after,
                },
            ),
        )

    def audit_ledger(self) -> models.LedgerAudit:
        """Compute all charges and balances anew and report each difference; it changes
        nothing."""
        return self._ask(models.LedgerAudit, Call("POST", "/v1/admin/ledger-audit"))

    def get_usage(
        self,
        *,
        by: str | None = None,
        begins_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> models.Usage:
        """Who used what of the account: by consumer, project, model and kind, by day or month if
        asked."""
        return self._ask(
            models.Usage,
            Call("GET", "/v1/usage", query={"by": by, "begins_at": begins_at, "ends_at": ends_at}),
        )

    def get_costs(
        self,
        *,
        by: str | None = None,
        begins_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> models.Costs:
        """What the account was charged and what its leased machines have cost, by day or by
        subject."""
        return self._ask(
            models.Costs,
            Call("GET", "/v1/costs", query={"by": by, "begins_at": begins_at, "ends_at": ends_at}),
        )

    def get_tco(
        self,
        *,
        purchase_price_microcredits: int | None = None,
        months_of_use: int | None = None,
        power_w: int | None = None,
        electricity_microcredits_per_kwh: int | None = None,
        on_demand_microcredits_per_gpu_hour: int | None = None,
        committed_microcredits_per_gpu_hour: int | None = None,
        overrides: str | None = None,
        node_id: Sequence[str] | None = None,
        begins_at: datetime | None = None,
        ends_at: datetime | None = None,
    ) -> models.Tco:
        """When the account's own nodes have paid for themselves, by the GPU-hours in the
        ledger."""
        return self._ask(
            models.Tco,
            Call(
                "GET",
                "/v1/tco",
                query={
                    "purchase_price_microcredits": purchase_price_microcredits,
                    "months_of_use": months_of_use,
                    "power_w": power_w,
                    "electricity_microcredits_per_kwh": electricity_microcredits_per_kwh,
                    "on_demand_microcredits_per_gpu_hour": on_demand_microcredits_per_gpu_hour,
                    "committed_microcredits_per_gpu_hour": committed_microcredits_per_gpu_hour,
                    "overrides": overrides,
                    "node_id": node_id,
                    "begins_at": begins_at,
                    "ends_at": ends_at,
                },
            ),
        )

    def list_datastores(
        self,
        *,
        status: str | None = None,
        region_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.DatastorePage:
        """The account's datastores; archived ones only when asked for by status."""
        return self._ask(
            models.DatastorePage,
            Call(
                "GET",
                "/v1/datastores",
                query={"status": status, "region_id": region_id, "limit": limit, "after": after},
            ),
        )

    def create_datastore(self, body: models.DatastoreCreation) -> models.Datastore:
        """Register a shared folder of a region that has an active node, which then checks it."""
        return self._ask(models.Datastore, Call("POST", "/v1/datastores", body=_sent(body)))

    def get_datastore(self, datastore_id: str) -> models.Datastore:
        """Get Datastore."""
        return self._ask(models.Datastore, Call("GET", f"/v1/datastores/{segment(datastore_id)}"))

    def remove_datastore(self, datastore_id: str) -> models.Datastore:
        """Remove a datastore that no open job uses; the files on its server stay."""
        return self._ask(
            models.Datastore, Call("DELETE", f"/v1/datastores/{segment(datastore_id)}")
        )

    def list_reservations(
        self, *, region_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> models.ReservationPage:
        """The account's reservations, each with the job that holds it."""
        return self._ask(
            models.ReservationPage,
            Call(
                "GET",
                "/v1/reservations",
                query={"region_id": region_id, "limit": limit, "after": after},
            ),
        )

    def create_reservation(self, body: models.ReservationCreation) -> models.Reservation:
        """Reserve a hostname and a port in a region of own machines that has an active node."""
        return self._ask(models.Reservation, Call("POST", "/v1/reservations", body=_sent(body)))

    def get_reservation(self, reservation_id: str) -> models.DescribedReservation:
        """A reservation, with what nodes have said of its hostname."""
        return self._ask(
            models.DescribedReservation, Call("GET", f"/v1/reservations/{segment(reservation_id)}")
        )

    def remove_reservation(self, reservation_id: str) -> models.Reservation:
        """Remove a reservation that no open job names."""
        return self._ask(
            models.Reservation, Call("DELETE", f"/v1/reservations/{segment(reservation_id)}")
        )

    def list_devices(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        region_id: str | None = None,
        status: str | None = None,
        configuration_id: str | None = None,
        inference_status: str | None = None,
    ) -> models.DevicePage:
        """The account's devices; archived ones only when asked for by status."""
        return self._ask(
            models.DevicePage,
            Call(
                "GET",
                "/v1/devices",
                query={
                    "limit": limit,
                    "after": after,
                    "region_id": region_id,
                    "status": status,
                    "configuration_id": configuration_id,
                    "inference_status": inference_status,
                },
            ),
        )

    def add_device(self, body: models.DeviceCreation) -> models.Device:
        """Add a machine as a device by its minion id."""
        return self._ask(models.Device, Call("POST", "/v1/devices", body=_sent(body)))

    def get_device(self, device_id: str) -> models.Device:
        """Get Device."""
        return self._ask(models.Device, Call("GET", f"/v1/devices/{segment(device_id)}"))

    def change_device(self, device_id: str, body: models.DeviceSetting) -> models.Device:
        """Set the configuration of a device; what it runs changes with the next deployment."""
        return self._ask(
            models.Device, Call("PATCH", f"/v1/devices/{segment(device_id)}", body=_sent(body))
        )

    def remove_device(self, device_id: str) -> models.Device:
        """Remove a device: its inference ends, and what it has of the platform is removed
        there."""
        return self._ask(models.Device, Call("DELETE", f"/v1/devices/{segment(device_id)}"))

    def activate_device(self, device_id: str) -> models.Device:
        """Let a device in maintenance follow deployments."""
        return self._ask(models.Device, Call("POST", f"/v1/devices/{segment(device_id)}/activate"))

    def maintain_device(self, device_id: str) -> models.Device:
        """Put a device in maintenance: what it runs goes on, and deployments wait."""
        return self._ask(
            models.Device, Call("POST", f"/v1/devices/{segment(device_id)}/maintenance")
        )

    def reboot_device(self, device_id: str) -> models.Device:
        """Reboot a device; it then runs what it ran before."""
        return self._ask(models.Device, Call("POST", f"/v1/devices/{segment(device_id)}/reboot"))

    def stop_device(self, device_id: str) -> models.Device:
        """Stop what a device runs, also for its next start; one that is away does so once
        back."""
        return self._ask(models.Device, Call("POST", f"/v1/devices/{segment(device_id)}/stop"))

    def list_device_configurations(
        self, *, region_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> models.DeviceConfigurationPage:
        """The account's device configurations, each with how many devices have it."""
        return self._ask(
            models.DeviceConfigurationPage,
            Call(
                "GET",
                "/v1/device-configurations",
                query={"region_id": region_id, "limit": limit, "after": after},
            ),
        )

    def create_device_configuration(
        self, body: models.DeviceConfigurationCreation
    ) -> models.DescribedDeviceConfiguration:
        """Create a configuration with its first revision."""
        return self._ask(
            models.DescribedDeviceConfiguration,
            Call("POST", "/v1/device-configurations", body=_sent(body)),
        )

    def get_device_configuration(
        self, configuration_id: str
    ) -> models.DescribedDeviceConfiguration:
        """A configuration with its latest revision and a list of its revisions."""
        return self._ask(
            models.DescribedDeviceConfiguration,
            Call("GET", f"/v1/device-configurations/{segment(configuration_id)}"),
        )

    def change_device_configuration(
        self, configuration_id: str, body: models.DeviceConfigurationChange
    ) -> models.DescribedDeviceConfiguration:
        """Make the next revision: the fields that are sent differ from the latest one."""
        return self._ask(
            models.DescribedDeviceConfiguration,
            Call(
                "PATCH", f"/v1/device-configurations/{segment(configuration_id)}", body=_sent(body)
            ),
        )

    def remove_device_configuration(self, configuration_id: str) -> models.DeviceConfiguration:
        """Remove a configuration that no device has."""
        return self._ask(
            models.DeviceConfiguration,
            Call("DELETE", f"/v1/device-configurations/{segment(configuration_id)}"),
        )

    def get_device_revision(self, configuration_id: str, revision: str) -> models.DeviceRevision:
        """A revision; the values of variables are never shown."""
        return self._ask(
            models.DeviceRevision,
            Call(
                "GET",
                f"/v1/device-configurations/{segment(configuration_id)}/revisions/{segment(revision)}",
            ),
        )

    def diff_device_revisions(
        self, configuration_id: str, *, from_: int, to: int
    ) -> models.DeviceRevisionDiff:
        """The fields in which two revisions differ; of variables only the names."""
        return self._ask(
            models.DeviceRevisionDiff,
            Call(
                "GET",
                f"/v1/device-configurations/{segment(configuration_id)}/diff",
                query={"from": from_, "to": to},
            ),
        )

    def list_deployments(
        self,
        *,
        region_id: str | None = None,
        status: str | None = None,
        configuration_id: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.DeploymentPage:
        """The account's deployments, those that have ended too."""
        return self._ask(
            models.DeploymentPage,
            Call(
                "GET",
                "/v1/device-deployments",
                query={
                    "region_id": region_id,
                    "status": status,
                    "configuration_id": configuration_id,
                    "limit": limit,
                    "after": after,
                },
            ),
        )

    def create_deployment(self, body: models.DeploymentCreation) -> models.Deployment:
        """Deploy a revision of a configuration to devices that are set to it."""
        return self._ask(
            models.Deployment, Call("POST", "/v1/device-deployments", body=_sent(body))
        )

    def get_deployment(self, deployment_id: str) -> models.Deployment:
        """Get Deployment."""
        return self._ask(
            models.Deployment, Call("GET", f"/v1/device-deployments/{segment(deployment_id)}")
        )

    def list_deployment_devices(
        self,
        deployment_id: str,
        *,
        state: str | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> models.DeploymentDevicePage:
        """The devices of a deployment, each with how far it is."""
        return self._ask(
            models.DeploymentDevicePage,
            Call(
                "GET",
                f"/v1/device-deployments/{segment(deployment_id)}/devices",
                query={"state": state, "limit": limit, "after": after},
            ),
        )

    def pause_deployment(self, deployment_id: str) -> models.Deployment:
        """Ask no more devices until the deployment is resumed."""
        return self._ask(
            models.Deployment,
            Call("POST", f"/v1/device-deployments/{segment(deployment_id)}/pause"),
        )

    def resume_deployment(self, deployment_id: str) -> models.Deployment:
        """Go on with a paused deployment."""
        return self._ask(
            models.Deployment,
            Call("POST", f"/v1/device-deployments/{segment(deployment_id)}/resume"),
        )

    def stop_deployment(self, deployment_id: str) -> models.Deployment:
        """End a deployment; devices that were asked already follow it."""
        return self._ask(
            models.Deployment, Call("POST", f"/v1/device-deployments/{segment(deployment_id)}/stop")
        )

    def roll_back_deployment(self, deployment_id: str) -> models.Deployment:
        """End a deployment; devices that were asked return to what they ran before."""
        return self._ask(
            models.Deployment,
            Call("POST", f"/v1/device-deployments/{segment(deployment_id)}/roll-back"),
        )

    def list_boot_drive_requests(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        region_id: str | None = None,
        status: str | None = None,
        all_accounts: bool | None = None,
    ) -> models.BootDriveRequestPage:
        """The account's requests; with `all_accounts`, for administrators, those of everybody."""
        return self._ask(
            models.BootDriveRequestPage,
            Call(
                "GET",
                "/v1/boot-drive-requests",
                query={
                    "limit": limit,
                    "after": after,
                    "region_id": region_id,
                    "status": status,
                    "all_accounts": all_accounts,
                },
            ),
        )

    def create_boot_drive_request(
        self, body: models.BootDriveRequestCreation
    ) -> models.BootDriveRequest:
        """Ask for drives from which machines of a region start; an administrator decides."""
        return self._ask(
            models.BootDriveRequest, Call("POST", "/v1/boot-drive-requests", body=_sent(body))
        )

    def get_boot_drive_request(self, boot_drive_request_id: str) -> models.BootDriveRequest:
        """A request of the account; an administrator sees those of all accounts."""
        return self._ask(
            models.BootDriveRequest,
            Call("GET", f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}"),
        )

    def approve_boot_drive_request(self, boot_drive_request_id: str) -> models.BootDriveRequest:
        """Promise the drives; the request must be `requested`."""
        return self._ask(
            models.BootDriveRequest,
            Call("POST", f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}/approve"),
        )

    def refuse_boot_drive_request(
        self, boot_drive_request_id: str, body: models.BootDriveRequestRefusal
    ) -> models.BootDriveRequest:
        """Refuse with a reason, which the account reads; the request must be `requested`."""
        return self._ask(
            models.BootDriveRequest,
            Call(
                "POST",
                f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}/refuse",
                body=_sent(body),
            ),
        )

    def ship_boot_drive_request(
        self, boot_drive_request_id: str, body: models.BootDriveRequestShipment
    ) -> models.BootDriveRequest:
        """Say that the drives are on their way; the request must be `approved`."""
        return self._ask(
            models.BootDriveRequest,
            Call(
                "POST",
                f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}/ship",
                body=_sent(body),
            ),
        )

    def receive_boot_drive_request(self, boot_drive_request_id: str) -> models.BootDriveRequest:
        """Say that the drives have come; the request must be `shipped`."""
        return self._ask(
            models.BootDriveRequest,
            Call("POST", f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}/receive"),
        )

    def withdraw_boot_drive_request(self, boot_drive_request_id: str) -> models.BootDriveRequest:
        """Take the request back; it must be `requested`."""
        return self._ask(
            models.BootDriveRequest,
            Call("POST", f"/v1/boot-drive-requests/{segment(boot_drive_request_id)}/withdraw"),
        )

    def list_events(
        self, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of all resources of the account; a stream starts now, or after `Last-Event-
        ID`."""
        return self._ask(
            models.EventPage, Call("GET", "/v1/events", query={"limit": limit, "after": after})
        )

    def list_provider_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a provider."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/providers/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_region_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a region."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/regions/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_node_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a node."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/nodes/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_lease_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a lease."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/leases/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_job_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a job."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/jobs/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_dataset_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a dataset."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/datasets/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_model_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a model."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/models/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_checkpoint_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a checkpoint."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/checkpoints/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_volume_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a volume."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/volumes/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_datastore_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a datastore."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/datastores/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_device_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a device."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/devices/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_deployment_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a deployment."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/device-deployments/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_federated_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a federated."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/federated-jobs/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_boot_drive_request_events(
        self, resource_id: str, *, limit: int | None = None, after: str | None = None
    ) -> models.EventPage:
        """Events of a boot-drive-request."""
        return self._ask(
            models.EventPage,
            Call(
                "GET",
                f"/v1/boot-drive-requests/{segment(resource_id)}/events",
                query={"limit": limit, "after": after},
            ),
        )

    def list_audit(
        self, *, resource_id: str | None = None, limit: int | None = None, after: str | None = None
    ) -> models.AuditPage:
        """The account's audit entries, newest first; kept for 400 days."""
        return self._ask(
            models.AuditPage,
            Call(
                "GET",
                "/v1/audit",
                query={"resource_id": resource_id, "limit": limit, "after": after},
            ),
        )

    def verify_audit(self) -> models.AuditVerification:
        """Compute the hashes of all accounts' audit entries anew; `broken` names what was
        changed."""
        return self._ask(models.AuditVerification, Call("GET", "/v1/audit/verification"))

    def list_credentials(self) -> models.CredentialList:
        """Where each key of the account's providers is, and its last characters; never a key."""
        return self._ask(models.CredentialList, Call("GET", "/v1/credentials"))

    def set_credential(
        self, kind: str, field: str, body: models.CredentialSetting
    ) -> models.Credential:
        """Store a key of a kind of provider under its field, in place of an earlier one."""
        return self._ask(
            models.Credential,
            Call("PUT", f"/v1/credentials/{segment(kind)}/{segment(field)}", body=_sent(body)),
        )

    def remove_credential(self, kind: str, field: str) -> models.Credential:
        """Remove a key from the store; one that a provider uses is 409."""
        return self._ask(
            models.Credential, Call("DELETE", f"/v1/credentials/{segment(kind)}/{segment(field)}")
        )

    def get_colab_bootstrap(self, *, provider_id: str) -> models.ColabBootstrap:
        """A cell for a notebook, with a one-time token that voids the one before."""
        return self._ask(
            models.ColabBootstrap,
            Call("GET", "/v1/colab/bootstrap", query={"provider_id": provider_id}),
        )

    def announce_colab_endpoint(
        self, body: models.ColabAnnouncementCreation
    ) -> models.ColabAnnouncementReceipt:
        """Announce where a notebook is reached, with the cell's one-time token in place of an API
        key."""
        return self._ask(
            models.ColabAnnouncementReceipt,
            Call("POST", "/v1/colab/announcements", body=_sent(body)),
        )
