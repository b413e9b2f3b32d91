"""Who is let in to a cloud that rents machines: routes, faults, and what is kept of each call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.http_double import Answer, Asked
from tests.doubles.rented.clock import Clock
from tests.doubles.rented.faults import AT_THE_DOOR, Fault, FaultKind, Faults

LOST = Answer(is_lost=True)
CAUSES_NOTHING = frozenset({FaultKind.LOST_REQUEST, FaultKind.ERROR, FaultKind.TOO_MANY})


class RefusedError(Exception):
    """A request that is answered by an error; the answer is what goes over the wire."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body.decode())
        self.answer = answer


@dataclass
class Call:
    """A request that has found its route. found: the parts of the path by name."""

    asked: Asked
    name: str
    found: dict[str, str]

    def body(self) -> Any:
        """Raises: ValueError when it is no JSON."""
        return json.loads(self.asked.body) if self.asked.body else None


@dataclass
class Route:
    """A verb and a path (`/v2/pods/{id}`), the name of the call, and who answers it."""

    verb: str
    path: str
    name: str
    answer: Callable[[Call], Answer]
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        self.pattern = re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path))


class Refusals:
    """How a cloud writes its refusals: of what does not exist, of a key, of too many, of itself."""

    def no_route(self, asked: Asked, is_known_path: bool) -> Answer:
        raise NotImplementedError

    def too_many(self, call: Call) -> Answer:
        raise NotImplementedError

    def error(self, status: int) -> Answer:
        raise NotImplementedError


class Door:
    """Answers each request under the lock of the clock, and strikes with the scripted faults."""

    def __init__(self, clock: Clock, faults: Faults, refusals: Refusals) -> None:
        self.clock = clock
        self.faults = faults
        self.refusals = refusals
        self.routes: list[Route] = []
        self.before: Callable[[Call], None] = lambda call: None
        """Authentication and limits, which may refuse."""
        self.dress: Callable[[Answer], Answer] = lambda answer: answer
        """What every answer carries in its head."""
        self.name_of: Callable[[Call], str] = lambda call: ""
        """The name of the machine that a call is about."""
        self.calls: list[str] = []
        """The names of the calls, in their order, refused ones included."""
        self.violations: list[str] = []
        """What was asked that the cloud's documents do not know."""

    def answer(self, asked: Asked) -> Answer:
        with self.clock.lock:
            if self.clock.now() < self.faults.away_until:
                self.faults.turned_away += 1
                return LOST
            call = self._route(asked)
            if isinstance(call, Answer):
                return call
            found, route = call
            self.calls.append(found.name)
            fault = self.faults.take(AT_THE_DOOR, found.name, self.name_of(found))
            answer = self._struck(fault, found, route)
            self.clock.moved.notify_all()
        if fault is not None and fault.kind in (FaultKind.HANG, FaultKind.DELAY):
            self._hold(fault)
        return answer

    def violated(self, call: Call, what: str) -> None:
        self.violations.append(f"{call.asked.method} {call.asked.path}: {what}")

    def _route(self, asked: Asked) -> tuple[Call, Route] | Answer:
        known = False
        for route in self.routes:
            matched = route.pattern.fullmatch(asked.path)
            known = known or matched is not None
            if matched is not None and route.verb == asked.method:
                return Call(asked, route.name, matched.groupdict()), route
        self.violations.append(f"{asked.method} {asked.path}: there is no such call")
        return self.refusals.no_route(asked, known)

    def _struck(self, fault: Fault | None, call: Call, route: Route) -> Answer:
        if fault is not None and fault.kind in CAUSES_NOTHING:
            return self._refused(fault, call)
        answer = self._served(call, route)
        if fault is None:
            return answer
        if fault.kind is FaultKind.LOST_REPLY:
            return LOST
        if fault.kind is FaultKind.ERROR_AFTER:
            return self.refusals.error(fault.status or 502)
        return answer

    def _refused(self, fault: Fault, call: Call) -> Answer:
        if fault.kind is FaultKind.LOST_REQUEST:
            return LOST
        if fault.kind is FaultKind.TOO_MANY:
            return self.refusals.too_many(call)
        return self.refusals.error(fault.status or 500)

    def _served(self, call: Call, route: Route) -> Answer:
        try:
            self.before(call)
            return self.dress(route.answer(call))
        except RefusedError as refused:
            return self.dress(refused.answer)

    def _hold(self, fault: Fault) -> None:
        """Until the fault is cleared, or its seconds are over."""
        seconds = fault.seconds if fault.kind is FaultKind.DELAY else float("inf")
        end = self.clock.now() + seconds
        self.clock.wait_until(end, lambda: fault not in self.faults.scripted)


def as_json(status: int, body: Any, kind: str = "application/json") -> Answer:
    return Answer(status, json.dumps(body).encode(), {"Content-Type": kind})
