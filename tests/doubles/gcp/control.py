"""The double's own paths, below /double/: what tests and people ask of it. No key is needed."""

from __future__ import annotations

import json
from typing import Any

from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.cloud import Cloud
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.frontdoor import Frontdoor, Reply, Request


class Control:
    """`VERB /double/NOUN`; see README.md for what each takes."""

    def __init__(self, cloud: Cloud, door: Frontdoor) -> None:
        self.cloud = cloud
        self.door = door

    async def answer(self, request: Request) -> Reply:
        noun = request.target.removeprefix("/double/").partition("?")[0]
        act = getattr(self, f"_{request.verb.lower()}_{noun}", None)
        if act is None:
            return Reply(404, {"error": f"{request.verb} /double/{noun}: there is no such thing"})
        try:
            asked = json.loads(request.body) if request.body else {}
            with self.cloud.lock:
                return Reply(200, act(asked))
        except (ValueError, KeyError, TypeError, LookupError) as error:
            return Reply(400, {"error": f"{type(error).__name__}: {error}"})

    def _get_violations(self, asked: Any) -> Any:
        return {"violations": self.cloud.violations}

    def _get_calls(self, asked: Any) -> Any:
        return {"calls": self.door.calls}

    def _get_faults(self, asked: Any) -> Any:
        faults = self.cloud.faults
        return {"faults": [each.told() for each in faults.scripted], "struck": faults.count()}

    def _post_faults(self, asked: Any) -> Any:
        """One fault by its fields, or `{"unreachable_s": n}`."""
        if "unreachable_s" in asked:
            self.cloud.faults.unreachable_for(float(asked["unreachable_s"]))
            return {}
        return self.cloud.faults.add(Fault(**{**asked, "kind": FaultKind(asked["kind"])})).told()

    def _delete_faults(self, asked: Any) -> Any:
        self.cloud.faults.clear()
        return {}

    def _post_keys(self, asked: Any) -> Any:
        """A new key: `{"project", "account", "roles"}`, each of which may be left out."""
        project = self.cloud.find_project(asked.get("project") or next(iter(self.cloud.projects)))
        if project is None:
            raise LookupError(f"project {asked['project']!r}: there is none")
        roles = tuple(asked.get("roles", PROVIDER_ROLES))
        email = self.cloud.add_account(project, asked.get("account", "baseload"), roles)
        return self.cloud.credentials.make_key(email, self.door.token_uri)
