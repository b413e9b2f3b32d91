"""ngrok's agent as one object: its API of tunnels, and the tunnels themselves."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from tests.doubles.http_double import Answer, Asked
from tests.doubles.ngrok.forwarder import Forwarder
from tests.doubles.rented.control import Control
from tests.doubles.rented.door import Call, Refusals, RefusedError, Route, as_json
from tests.doubles.rented.double import RentedDouble

API_PORT = 4040
"""Where the agent answers."""
NEEDS_CARD = (
    "failed to start tunnel: You must add a credit or debit card before you can use TCP endpoints "
    "on a free account. ERR_NGROK_8013"
)
UNKNOWN_TOKEN = "failed to authenticate: The authtoken you specified is not valid. ERR_NGROK_107"
UNANSWERED = "failed to connect to the agent"


@dataclass
class Tunnel:
    """shown_at: the instant from which the API shows it."""

    name: str
    addr: str
    forwarder: Forwarder
    shown_at: float

    def shown(self) -> dict[str, Any]:
        host, port = self.forwarder.address
        return {
            "name": self.name,
            "ID": hashlib.sha256(f"{self.name}:{port}".encode()).hexdigest()[:32],
            "uri": f"/api/tunnels/{self.name}",
            "public_url": f"tcp://{host}:{port}",
            "proto": "tcp",
            "config": {"addr": self.addr, "inspect": False},
            "metrics": {"conns": {"count": self.forwarder.connections, "gauge": 0}},
        }


class NgrokRefusals(Refusals):
    """Refusals as the agent writes them."""

    def no_route(self, asked: Asked, is_known_path: bool) -> Answer:
        return _error(405 if is_known_path else 404, 100, "resource not found", asked.path)

    def too_many(self, call: Call) -> Answer:
        return _error(429, 100, "too many requests", call.asked.path)

    def error(self, status: int) -> Answer:
        return _error(status, 103, UNANSWERED, "internal")


class NgrokDouble(RentedDouble):
    """An agent of our own, for as long as the block lasts.

        with NgrokDouble(port=API_PORT) as double:
            double.open("127.0.0.1", 22)

    has_card: whether the account may open TCP tunnels; token_is_known: whether it may open any;
    late_s: how long a new tunnel is not shown.
    """

    def __init__(self, *, rate: float = 0.0, port: int = 0) -> None:
        super().__init__(NgrokRefusals(), rate=rate, port=port)
        self.has_card = True
        self.token_is_known = True
        self.late_s = 0.0
        self.tunnels: dict[str, Tunnel] = {}
        self.control = Control(
            self.door, self.meter, machines=self._machines, happens=self.happens,
            settle=self.settle,
        )  # fmt: skip
        self.door.routes = [
            Route("GET", "/api/tunnels", "tunnels.list", self._listed),
            Route("POST", "/api/tunnels", "tunnels.start", self._started),
            Route("GET", "/api/tunnels/{name}", "tunnels.get", self._found),
            Route("DELETE", "/api/tunnels/{name}", "tunnels.stop", self._stopped),
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Where the agent's API is; what runs in a notebook expects it at port 4040."""
        return {"NGROK_API": self.url}

    def open(self, host: str, port: int, name: str = "command_line") -> tuple[str, int]:
        """The public address of a new tunnel to there, as `ngrok tcp PORT` opens it."""
        with self.clock.lock:
            self.close_tunnel(name)
            forwarder = Forwarder(host, port)
            addr = f"{host}:{port}"
            self.tunnels[name] = Tunnel(name, addr, forwarder, self.clock.now() + self.late_s)
            return forwarder.address

    def close_tunnel(self, name: str) -> None:
        tunnel = self.tunnels.pop(name, None)
        if tunnel is not None:
            tunnel.forwarder.close()

    def happens(self, event: str, name: str) -> None:
        """`cut`: its connections end; `moved`: it has another address, as in a new session;
        `gone`: it is closed. Raises: LookupError."""
        tunnel = self.tunnels[name]
        if event == "cut":
            tunnel.forwarder.cut()
        elif event == "moved":
            self.open(*tunnel.forwarder.target, name)
        elif event == "gone":
            self.close_tunnel(name)
        else:
            raise LookupError(f"event {event!r}: there is none")

    def settle(self, given: dict[str, Any]) -> None:
        """Raises: LookupError for a name that nothing has."""
        for name, value in given.items():
            if name not in ("has_card", "token_is_known", "late_s"):
                raise LookupError(f"setting {name!r}: there is none")
            setattr(self, name, value)

    def close(self) -> None:
        for name in tuple(self.tunnels):
            self.close_tunnel(name)
        super().close()

    def _listed(self, call: Call) -> Answer:
        now = self.clock.now()
        rows = [each.shown() for each in self.tunnels.values() if each.shown_at <= now]
        return as_json(200, {"tunnels": rows, "uri": "/api/tunnels"})

    def _found(self, call: Call) -> Answer:
        return as_json(200, self._needed(call).shown())

    def _stopped(self, call: Call) -> Answer:
        self.close_tunnel(self._needed(call).name)
        return Answer(204)

    def _started(self, call: Call) -> Answer:
        asked = call.body() or {}
        unknown = set(asked) - {"addr", "proto", "name"}
        if unknown or asked.get("proto") != "tcp" or not asked.get("name"):
            self.door.violated(call, f"{asked}: a name, an addr and the proto tcp are expected")
            raise _refused(400, "invalid tunnel configuration", str(asked))
        if not self.token_is_known:
            raise _refused(502, UNKNOWN_TOKEN, "authtoken")
        if not self.has_card:
            raise _refused(502, NEEDS_CARD, "tcp")
        host, _, port = str(asked.get("addr", "")).rpartition(":")
        if not port.isdigit():
            raise _refused(400, "invalid tunnel configuration", f"addr {asked.get('addr')}")
        self.open(host or "127.0.0.1", int(port), asked["name"])
        return as_json(201, self.tunnels[asked["name"]].shown())

    def _needed(self, call: Call) -> Tunnel:
        tunnel = self.tunnels.get(call.found["name"])
        if tunnel is None:
            raise _refused(404, "tunnel not found", call.found["name"])
        return tunnel

    def _machines(self) -> Any:
        return {"tunnels": [each.shown() for each in self.tunnels.values()]}


def _error(status: int, code: int, msg: str, err: str) -> Answer:
    body = {"error_code": code, "status_code": status, "msg": msg, "details": {"err": err}}
    return as_json(status, body)


def _refused(status: int, msg: str, err: str) -> RefusedError:
    return RefusedError(_error(status, 103, msg, err))
