"""The double's own paths, below /double/: what tests and people ask of it. No key is needed."""

from __future__ import annotations

import json
from typing import Any

from tests.doubles.gcp.access import PROVIDER_ROLES
from tests.doubles.gcp.cloud import Cloud
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.faults import Fault, FaultKind
from tests.doubles.gcp.frontdoor import Frontdoor, Reply, Request

EVENTS = frozenset({"preempt", "host_error", "guest_terminate", "delete_by_hand", "stop_by_hand"})


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
        except (ValueError, TypeError, LookupError, RefusedError) as error:
            return Reply(400, {"error": f"{type(error).__name__}: {error}"})

    def _get_violations(self, asked: Any) -> Any:
        return {"violations": self.cloud.violations}

    def _get_calls(self, asked: Any) -> Any:
        return {"calls": self.door.calls}

    def _get_meter(self, asked: Any) -> Any:
        return self.cloud.meter.told()

    def _get_state(self, asked: Any) -> Any:
        """What exists, each by its path, and what is used."""
        cloud = self.cloud
        resources = cloud.resources
        paths = [path for path in resources.paths(r"projects/.*") if "/operations/" not in path]
        return {
            "resources": {path: resources.get(path).get("status", "READY") for path in paths},
            "instances": [vm.body for vm in cloud.machines.vms.values()],
            "topics": sorted(cloud.pubsub.topics),
            "subscriptions": sorted(cloud.pubsub.subscriptions),
            "sinks": sorted(cloud.sinks),
            "machines_made": cloud.machines.made,
            "undelivered": [[name, reason] for name, reason, _ in cloud.undelivered],
        }

    def _post_events(self, asked: Any) -> Any:
        """`{"event": preempt|host_error|guest_terminate|delete_by_hand|stop_by_hand, "name"}`."""
        paths = [path for path, vm in self.cloud.machines.vms.items() if vm.name == asked["name"]]
        if not paths or asked["event"] not in EVENTS:
            raise LookupError(f"{asked}: no such VM or no such event")
        return {"done": bool(getattr(self.cloud.machines, asked["event"])(paths[0]))}

    def _post_settings(self, asked: Any) -> Any:
        """Stock, limits, lag and the like, each where it is given; see README.md."""
        cloud = self.cloud
        for zone, kind, count in asked.get("stock", []):
            cloud.stock.set(zone, kind, int(count))
        for region, limits in asked.get("limits", {}).items():
            next(iter(cloud.projects.values())).limits.setdefault(region, {}).update(limits)
        for name, value in asked.get("durations", {}).items():
            if not hasattr(cloud.durations, name):
                raise LookupError(f"duration {name!r}: there is none")
            setattr(cloud.durations, name, float(value))
        cloud.meter.prices.update(asked.get("prices", {}))
        cloud.resources.list_lag_s = float(asked.get("list_lag_s", cloud.resources.list_lag_s))
        cloud.clock.skew_s = float(asked.get("skew_s", cloud.clock.skew_s))
        cloud.clock.time_scale = float(asked.get("time_scale", cloud.clock.time_scale))
        return {}

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
