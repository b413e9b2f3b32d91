"""What a served method is given, and how methods are registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.doubles.gcp.discovery import Json, Method

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud
    from tests.doubles.gcp.project import Project


@dataclass(frozen=True)
class Call:
    """One request that was let in: who asks what of which project."""

    cloud: Cloud
    project: Project
    method: Method
    parameters: Mapping[str, list[str]]
    body: Json
    principal: str

    @classmethod
    def by_hand(cls, cloud: Cloud, project: Project, method: str, principal: str) -> Call:
        """As if a person had done it in the console."""
        return cls(cloud, project, Method.named(method), {}, {}, principal)

    def __getitem__(self, name: str) -> str:
        return self.parameters[name][0]

    def get(self, name: str, default: str = "") -> str:
        return self.parameters.get(name, [default])[0]

    def flag(self, name: str) -> bool:
        return self.get(name, "false").lower() == "true"


Handler = Callable[[Call], Any]


class Register(dict[str, Handler]):
    """Handlers by method id; used as a decorator: `@serves("compute.zones.list")`."""

    def __call__(self, *methods: str) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.update(dict.fromkeys(methods, handler))
            return handler

        return add
