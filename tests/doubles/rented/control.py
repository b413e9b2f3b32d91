"""The double's own paths, below /double/: what tests and people ask of it. No key is needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.doubles.http_double import Answer, Asked
from tests.doubles.rented.clock import Clock
from tests.doubles.rented.door import Door, as_json
from tests.doubles.rented.faults import Fault, FaultKind
from tests.doubles.rented.meter import Meter

Happens = Callable[[str, str], object]
"""An event and the name of the machine to which it happens."""


class Control:
    """`VERB /double/NOUN`; the README of each double says what each takes."""

    def __init__(
        self,
        door: Door,
        meter: Meter,
        *,
        machines: Callable[[], Any],
        happens: Happens,
        settle: Callable[[dict[str, Any]], None],
    ) -> None:
        self.door = door
        self.clock: Clock = door.clock
        self.meter = meter
        self._machines = machines
        self._happens = happens
        self._settle = settle

    def answer(self, asked: Asked) -> Answer:
        noun = asked.path.removeprefix("/double/")
        act = getattr(self, f"_{asked.method.lower()}_{noun}", None)
        if act is None:
            return as_json(404, {"error": f"{asked.method} /double/{noun}: there is none"})
        try:
            given = json.loads(asked.body) if asked.body else {}
            with self.clock.lock:
                return as_json(200, act(given))
        except (ValueError, TypeError, LookupError) as error:
            return as_json(400, {"error": f"{type(error).__name__}: {error}"})

    def _get_calls(self, given: Any) -> Any:
        return {"calls": self.door.calls}

    def _get_violations(self, given: Any) -> Any:
        return {"violations": self.door.violations}

    def _get_meter(self, given: Any) -> Any:
        return self.meter.shown()

    def _get_state(self, given: Any) -> Any:
        return {"machines": self._machines(), "now": self.clock.now()}

    def _post_clock(self, given: Any) -> Any:
        """`{"advance_s": 60}`."""
        self.clock.advance(float(given["advance_s"]))
        return {"now": self.clock.now()}

    def _post_events(self, given: Any) -> Any:
        """`{"event", "name"}`."""
        self._happens(given["event"], given["name"])
        return {}

    def _post_settings(self, given: Any) -> Any:
        self._settle(given)
        return {}

    def _get_faults(self, given: Any) -> Any:
        faults = self.door.faults
        return {"faults": [each.shown() for each in faults.scripted], "struck": faults.count()}

    def _post_faults(self, given: Any) -> Any:
        """One fault by its fields, or `{"away_s": n}`."""
        if "away_s" in given:
            self.door.faults.away_until = self.clock.now() + float(given["away_s"])
            return {}
        return self.door.faults.add(Fault(**{**given, "kind": FaultKind(given["kind"])})).shown()

    def _delete_faults(self, given: Any) -> Any:
        self.door.faults.clear()
        return {}
