"""The keeper of a port mapping: makes it, renews it, announces a new address, and deletes it.

A mapping lives as long as its platform is in the join file. So it ends with the removal of the
node, also when the removal could not reach this machine's router.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import timer
from .announcing import NotAnnouncedError, NotJoinedError, announce, host_key_of
from .discovery import find_gateway
from .exchange import Deadline, RouterError
from .gateway import Gateway
from .mapping import add_mapping, usual_port
from .routes import Way, way_to, why_unmapped
from .state_file import BusyError, State, locked_state

FOLDER = "upnp"
ROUTER_LIMIT_S = 20.0
RELEASE_LIMIT_S = 8.0
ASK_AGAIN_S = 3600
"""A machine that has been added asks at this interval whether it still is: it may have been removed
while nobody reached it."""
MOST_FAILURES = 30 * 144
"""After a month of announcements in vain the port is closed."""
MOST_TRIES = 144
"""For how many renewals, a day of them, a permanent mapping is tried to be deleted."""
Say = Callable[[str], object]


class Keeper:
    """The keeper of the machine that this join file is of.

    say: takes sentences for the machine's owner.
    """

    def __init__(self, join_file: str, say: Say = print, limit_s: float = ROUTER_LIMIT_S) -> None:
        self.join_file = os.path.abspath(join_file)
        self.folder = os.path.join(os.path.dirname(self.join_file), FOLDER)
        self._say = say
        self._limit_s = limit_s

    def map(self, api: str, joined: Dict[str, Any]) -> Optional[Tuple[str, int]]:
        """Map the port of sshd for this platform; the address and port to announce.

        None: the machine's own address is the one to announce, and a sentence says why.
        joined: `port`, `user` and `host_key`, the path of the public host key.
        Raises: BusyError.
        """
        with locked_state(self.folder) as state:
            before = state.joined.pop(api, {})
            found = self._mapped(state, api, joined)
            if found is not None:
                state.joined[api] = {**before, **joined}
            self._settle(state)
        return found

    def keep(self, api: str, announced: Tuple[str, int]) -> None:
        """Keep the mapping from now on: the platform has taken the announcement."""
        with locked_state(self.folder) as state:
            more = {"accepted": True, "announced": list(announced), "failures": 0, "added": False}
            if api not in state.joined:
                return
            state.joined[api].update(more)
            command = [sys.executable, "-I", "-S", self.folder, "renew"]
            command += ["--join-file", self.join_file]
            joined = state.joined[api]  # From these the state is made anew where it is lost.
            command += ["--port", str(joined["port"]), "--user", str(joined["user"])]
            command += ["--host-key", str(joined["host_key"])]
            self._say(timer.start(timer.name_of(self.join_file), command))

    def withdraw(self, api: str, *, even_accepted: bool = True) -> None:
        """Delete the mapping of this platform, unless another one reaches the machine by it.

        even_accepted: False leaves the mapping of a machine that has been announced before.
        """
        with locked_state(self.folder) as state:
            if even_accepted or not state.joined.get(api, {}).get("accepted"):
                state.joined.pop(api, None)
            self._settle(state)

    def renew(self, known: Optional[Dict[str, Any]] = None) -> None:
        """Prolong the mappings, announce changes, and end what the machine has not joined.

        known: as `joined` of `map`, from which the state is made anew if it is lost; then each
        platform in the join file gets the mapping, and one that wants none says so.
        """
        with locked_state(self.folder) as state:
            tokens = self._drop_unjoined(state)
            if state.is_lost and known is not None:
                state.joined = {api: {**known, "accepted": True} for api in tokens}
            for port in sorted({str(one["port"]) for one in state.joined.values()}):
                self._refresh(state, port)
            for api in list(state.joined):
                self._announce(state, api, tokens[api])
            self._settle(state)

    def end_unjoined(self) -> None:
        """Delete the mappings of platforms that are not in the join file any more."""
        if not os.path.isdir(self.folder):
            return
        # Whoever has the lock sees the join file too, at the latest at the next renewal.
        with contextlib.suppress(BusyError), locked_state(self.folder, 5.0) as state:
            self._drop_unjoined(state)
            self._settle(state)

    def _drop_unjoined(self, state: State) -> Dict[str, str]:
        """The join tokens by API; forgets the platforms that have none."""
        tokens = {}
        with contextlib.suppress(FileNotFoundError), open(self.join_file) as file:
            for line in file:
                words = line.split()
                if len(words) >= 3:
                    tokens[words[0]] = words[2]
        for api in [api for api in state.joined if api not in tokens]:
            del state.joined[api]
        return tokens

    def _mapped(self, state: State, api: str, joined: Dict[str, Any]) -> Optional[Tuple[str, int]]:
        port = str(joined["port"])
        external_port = usual_port(host_key_of(joined["host_key"]))
        try:
            way = way_to(api)
        except (OSError, ValueError):
            return None  # The announcement says it.
        reason = why_unmapped(way)
        if reason is not None:
            self._say("no port is mapped on a router, since none is needed: %s" % reason)
            return None
        try:
            mapping = self._map(state, way, port, external_port)
        except RouterError as error:
            self._say("no port is mapped on the router: %s" % error)
            self._say(_by_hand(way, port, external_port))
            return None
        self._say(
            "TCP port %d of the router, %s, leads to port %s of this machine"
            % (mapping["external_port"], mapping["address"], port)
        )
        return mapping["address"], mapping["external_port"]

    def _map(self, state: State, way: Way, port: str, external_port: int) -> Dict[str, Any]:
        """Make or prolong the mapping of a port, and remember it. Raises: RouterError."""
        deadline = Deadline(self._limit_s)
        before = state.mappings.get(port)
        gateway = self._gateway(state, way, port, deadline)
        address = gateway.external_address(deadline)
        if not address.is_global or address.is_multicast:
            raise RouterError(
                "the address of the router outside is %s, which is not public, so that nobody "
                "reaches this machine by it: the provider shares one address among customers "
                "(CGNAT), or there is a router before the router" % address
            )
        if before is not None:
            external_port = before["external_port"]
            if before["own_address"] != way.own_address:
                with contextlib.suppress(RouterError):
                    gateway.delete(external_port, deadline)
        made = add_mapping(gateway, external_port, int(port), deadline)
        state.mappings[port] = {
            "external_port": made.external_port,
            "lifetime_s": made.lifetime_s,
            "address": str(address),
            "service": gateway.service,
            "control": list(gateway.control),
            "own_address": gateway.own_address,
        }
        return state.mappings[port]

    def _gateway(self, state: State, way: Way, port: str, deadline: Deadline) -> Gateway:
        """The gateway of before if it answers, else the one that a search finds."""
        known = state.gateway(port)
        if known is not None and way.router in (None, known.control.host):
            with contextlib.suppress(RouterError):
                known.external_address(deadline)
                return known._replace(own_address=way.own_address)
        return find_gateway(way, deadline)

    def _refresh(self, state: State, port: str) -> None:
        api = next(api for api, one in state.joined.items() if str(one["port"]) == port)
        try:
            self._map(state, way_to(api), port, usual_port(host_key_of(_key(state, api))))
        except (RouterError, OSError, ValueError) as error:
            self._say("the mapping of port %s is not renewed: %s" % (port, error))

    def _announce(self, state: State, api: str, token: str) -> None:
        """Announce the address if it has changed, or to ask whether the machine is still added."""
        joined = state.joined[api]
        mapping = state.mappings.get(str(joined["port"]))
        if mapping is None:
            return
        place = [mapping["address"], mapping["external_port"]]
        # The clock may be wrong, and be set back.
        is_due = abs(time.time() - joined.get("asked_s", 0)) >= ASK_AGAIN_S
        if place == joined.get("announced") and joined.get("added") and not is_due:
            return
        try:
            receipt = announce(api, token, joined, place[0], place[1])
        except NotAnnouncedError as error:
            self._say(str(error))
            joined["failures"] = joined.get("failures", 0) + 1
            if isinstance(error, NotJoinedError) or joined["failures"] >= MOST_FAILURES:
                del state.joined[api]
            return
        if place != joined.get("announced"):
            self._say("announced to %s at %s:%d" % (api, *place))
        joined.update(
            announced=place,
            asked_s=time.time(),
            added=receipt.get("added") is True,
            failures=0,
            accepted=True,
        )
        if receipt.get("upnp") is False:
            self._obey(state, api, token)

    def _obey(self, state: State, api: str, token: str) -> None:
        """The node has been added without UPnP: its machine is at its own address again."""
        joined = state.joined.pop(api)
        self._say("%s has the node without UPnP: the mapping is deleted" % api)
        try:
            announce(api, token, joined, way_to(api).own_address, joined["port"])
        except (NotAnnouncedError, OSError, ValueError) as error:
            self._say(str(error))

    def _settle(self, state: State) -> None:
        """Delete the mappings that nobody needs, and what is here of the keeper after the last."""
        for port in [port for port in state.mappings if not state.is_needed(port)]:
            if self._has_deleted(state, port):
                del state.mappings[port]
        if state.is_damaged and not state.joined and self._has_joined():
            self._say("what is known of the mapped ports cannot be read: run join.sh again")
        elif not state.joined and not state.mappings:
            timer.end(timer.name_of(self.join_file))
            shutil.rmtree(self.folder, ignore_errors=True)

    def _has_joined(self) -> bool:
        """Whether a platform is in the join file."""
        return bool(self._drop_unjoined(State({})))

    def _has_deleted(self, state: State, port: str) -> bool:
        """Whether the mapping is deleted, ends by itself, or cannot be deleted for too long."""
        gateway, mapping = state.gateway(port), state.mappings[port]
        assert gateway is not None
        deadline = Deadline(self._limit_s)
        try:
            for each in self._gateways(gateway, deadline):
                with contextlib.suppress(RouterError):
                    each.delete(mapping["external_port"], deadline)
                    self._say("port %d of the router is closed" % mapping["external_port"])
                    return True
        except RouterError:
            pass
        if mapping["lifetime_s"]:
            self._say(
                "the router does not delete the mapping of its port %d, which ends by itself in "
                "at most %d minutes" % (mapping["external_port"], mapping["lifetime_s"] // 60)
            )
            return True
        mapping["tries"] = mapping.get("tries", 0) + 1
        self._say(
            "the router does not delete the mapping of its port %d, and keeps it: it is tried "
            "again; or delete it in the router's own pages" % mapping["external_port"]
        )
        return bool(mapping["tries"] >= MOST_TRIES)

    def _gateways(self, known: Gateway, deadline: Deadline) -> List[Gateway]:
        """The gateway that has a mapping: where it was, or where a search finds it now."""
        try:
            known.external_address(deadline)
        except RouterError:
            way = Way(known.own_address, "", known.control.host)
            return [find_gateway(way, deadline)]
        return [known]


def end_unjoined(join_files: List[str]) -> None:
    """Delete the mappings of platforms that are in none of these join files any more."""
    for join_file in join_files:
        keeper = Keeper(join_file, lambda text: sys.stderr.write(text + "\n"), RELEASE_LIMIT_S)
        try:
            keeper.end_unjoined()
        except OSError as error:  # The rest of a release must not fail by it.
            sys.stderr.write("upnp: %s\n" % error)


def _key(state: State, api: str) -> str:
    return str(state.joined[api]["host_key"])


def _by_hand(way: Way, port: str, external_port: int) -> str:
    return (
        "the machine joins with its own address, %s. If the platform cannot reach it there: have "
        "your router forward a TCP port, %d for example, to %s port %s, and run join.sh again with "
        "--address (the router's public address) --port %d"
        % (way.own_address, external_port, way.own_address, port, external_port)
    )
