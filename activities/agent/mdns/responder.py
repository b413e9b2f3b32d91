"""The responder: publishes one hostname on one link, as RFC 6762 says.

    probing → published ⇄ conflict → probing, after a pause;  left, to whoever got the name later

The name is fixed, so that in a conflict nobody takes another one: the responder is silent, says
so, and probes again after a while. Beside its addresses the hostname has a text record, by which
the nodes of one reservation know each other: the node that got it later takes it over at once, and
the earlier one leaves it without a word, also where nobody can reach it to end its run.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import packets
from .packets import AAAA, ANY, CNAME, NSEC, TXT, A, Message, Question, Record

TTL_S = 120
PROBES = 3
PROBE_EVERY_S = 0.25
ANNOUNCE_AFTER_S = (0.0, 1.0, 2.0)
REPEAT_S = 1.0
"""A record is not sent to all again sooner, but to defend the name."""
DEFEND_AGAIN_S = 0.25
YIELD_S = 1.0
FIRST_PAUSE_S, LAST_PAUSE_S = 5.0, 60.0
CALM_S = 300.0
"""A conflict so long after the one before is the first of its kind again."""
MORE_ANSWERS_S = (0.4, 0.5)
MOST_NAMED = 8
MOST_HELD = 64
"""The queries whose known answers are still being collected."""
PROBING, PUBLISHED, CONFLICT, LEFT = "probing", "published", "conflict", "left"

if TYPE_CHECKING:  # Python 3.8 has no such type.
    Send = Callable[[bytes, Any], None]
    """Sends a packet to one address; None: to all on the link."""


class Responder:
    """The responder of one hostname; whoever has it hands packets and the time over.

    hostname: with its domain. order: higher for whoever got the reservation later.
    send: how packets leave. report: called with state, addresses and a sentence, when it changes.
    """

    def __init__(
        self,
        hostname: str,
        reservation_id: str,
        order: int,
        send: Send,
        report: Callable[[str, Sequence[str], str], None],
    ) -> None:
        self.hostname = hostname
        self.name = packets.name_of(hostname)
        self.reservation_id = reservation_id
        self.order = order
        self.send = send
        self.report = report
        self.state = PROBING
        self.records: list[Record] = []
        self.addresses: tuple[str, ...] = ()
        self.due_s = 0.0
        self.probes_sent = 0
        self.announced = 0
        self.sent_s = float("-inf")
        """When the records were last sent to all."""
        self.pause_s = FIRST_PAUSE_S
        self.conflict_s = float("-inf")
        self.repeat_s = float("inf")
        """When they are sent to all again, because somebody asked too soon after that."""
        self.held: dict[Any, tuple[float, Message, set[tuple[int, bytes]]]] = {}

    # ── what it publishes ───────────────────────────────────────────────────────────────────

    def take_addresses(self, four: Sequence[str], six: Sequence[str], now_s: float) -> None:
        """Publish these addresses, which may differ from those of before."""
        addresses = (*four, *six)
        if addresses == self.addresses:
            return
        had = bool(self.addresses)
        self.addresses = addresses
        self.records = [
            *(self._record(A, _packed(address)) for address in four),
            *(self._record(AAAA, _packed(address)) for address in six),
            self._record(TXT, packets.text_data([self._mark, "order=%d" % self.order])),
        ]
        if had and self.state == PUBLISHED:
            self._publish(now_s)

    @property
    def _mark(self) -> str:
        return "baseload=%s" % self.reservation_id

    def _record(self, kind: int, rdata: bytes) -> Record:
        return Record(self.name, kind, rdata, TTL_S)

    # ── the clock ───────────────────────────────────────────────────────────────────────────

    def begin(self, now_s: float) -> None:
        """Begin to probe, after a moment that differs from machine to machine."""
        self.state = PROBING
        self.probes_sent = 0
        self.due_s = now_s + random.uniform(0, PROBE_EVERY_S)

    def wait_until_s(self) -> float:
        """When `work` is due again."""
        return min([self.due_s, self.repeat_s, *(held[0] for held in self.held.values())])

    def work(self, now_s: float) -> None:
        """Do what is due."""
        for source, (at_s, query, known) in list(self.held.items()):
            if at_s <= now_s:
                del self.held[source]
                self._answer(query, source, known, now_s)
        if self.state == PUBLISHED and now_s >= self.repeat_s:
            self._send_all(now_s)
        if now_s < self.due_s:
            return
        if self.state == PROBING:
            self._probe(now_s)
        elif self.state == PUBLISHED:
            self._announce(now_s)
        elif self.state == CONFLICT:
            self.begin(now_s)
        else:
            self.due_s = float("inf")

    def end(self) -> None:
        """Take the name back, so that no cache keeps it."""
        if self.state == PUBLISHED:
            gone = [Record(self.name, each.kind, each.rdata, 0) for each in self.records]
            self.send(packets.write_response(gone), None)
        self.state = LEFT

    def _probe(self, now_s: float) -> None:
        if self.probes_sent == PROBES:
            self._publish(now_s)
            return
        # Some responders, such as python-zeroconf, are silent to ANY for the name of a machine.
        klass = packets.IN | packets.TOP_BIT
        questions = [Question(self.name, kind, klass) for kind in (ANY, A, AAAA)]
        self.send(packets.write_query(questions, self.records), None)
        self.probes_sent += 1
        self.due_s = now_s + PROBE_EVERY_S

    def _publish(self, now_s: float) -> None:
        self.state, self.announced = PUBLISHED, 0
        self._announce(now_s)
        words = "%s is published: %s" % (self.hostname, ", ".join(self.addresses))
        self.report(PUBLISHED, self.addresses, words)

    def _announce(self, now_s: float) -> None:
        if self.announced >= len(ANNOUNCE_AFTER_S):
            self.due_s = float("inf")
            return
        self._send_all(now_s)
        self.announced += 1
        more = ANNOUNCE_AFTER_S[self.announced :][:1]
        self.due_s = now_s + more[0] if more else float("inf")

    def _send_all(self, now_s: float) -> None:
        self.sent_s, self.repeat_s = now_s, float("inf")
        self.send(packets.write_response(self.records), None)

    # ── packets ─────────────────────────────────────────────────────────────────────────────

    def take(self, packet: bytes, source: Any, port: int, now_s: float) -> None:
        """Handle a packet from the link. source: the address to which an answer goes."""
        message = packets.read(packet)
        if message is None or self.state == LEFT:
            return
        if message.is_response:
            if port == packets.PORT:  # Others are no mDNS.
                self._take_response(message, now_s)
            return
        # Jobs ask from other ports, and claim nothing.
        own = message.authorities if port == packets.PORT else ()
        claimed = [each for each in own if each.name == self.name]
        if claimed and not self._are_own(claimed) and self._take_claim(claimed, now_s):
            return
        if self.state != PUBLISHED or not self._concerns(message, source):
            return
        known = {(e.kind, e.rdata) for e in message.answers if self._is_known(e)}
        if port == packets.PORT and (message.goes_on or source in self.held):
            self._hold(message, source, known, now_s)
        elif port == packets.PORT:
            self._answer(message, source, known, now_s, defends=bool(claimed))
        else:
            self._answer_plainly(message, source)

    def _take_response(self, message: Message, now_s: float) -> None:
        found = [e for e in (*message.answers, *message.others) if e.name == self.name and e.ttl_s]
        if self.state not in (PROBING, PUBLISHED) or not self._differ(found):
            return
        order = self._order_in(found)
        if order is None:
            self._give_up(found, now_s)
        elif order > self.order:
            self._leave(found)
        elif order < self.order:
            self._publish(now_s)  # The node that had it before does not know of us yet.

    def _take_claim(self, claimed: list[Record], now_s: float) -> bool:
        """Handle the records that another machine probes for; False: they are to be refused."""
        order = self._order_in(claimed)
        if order is not None and order > self.order:
            self._leave(claimed)
            return True
        if self.state != PROBING:
            return False
        theirs = sorted(each.key for each in claimed)
        if theirs > sorted(each.key for each in self.records) and order is None:
            # They have won; if they are still there after a second, they answer the next probe.
            self.probes_sent, self.due_s = 0, now_s + YIELD_S
        return True

    def _leave(self, found: Sequence[Record]) -> None:
        self.state, self.due_s = LEFT, float("inf")
        words = "%s has gone to the node that got it later: %s"
        self.report(CONFLICT, _addresses(found), words % (self.hostname, _named(found)))

    def _give_up(self, found: Sequence[Record], now_s: float) -> None:
        """Say that another machine has the name; ask for it again at once, or after a pause."""
        was_published = self.state == PUBLISHED
        is_first = now_s - self.conflict_s > CALM_S
        self.pause_s = FIRST_PAUSE_S if is_first else min(self.pause_s * 2, LAST_PAUSE_S)
        self.conflict_s = now_s
        words = "%s is not published: another machine on the link has the name (%s)"
        self.state = CONFLICT
        self.report(CONFLICT, _addresses(found), words % (self.hostname, _named(found)))
        if was_published and is_first:
            self.begin(now_s)  # Whoever has it defends it now; nobody else is to have it.
        else:
            self.due_s = now_s + self.pause_s

    # ── answers ─────────────────────────────────────────────────────────────────────────────

    def _concerns(self, message: Message, source: Any) -> bool:
        is_asked = any(question.name == self.name for question in message.questions)
        return is_asked or source in self.held

    def _hold(
        self, message: Message, source: Any, known: set[tuple[int, bytes]], now_s: float
    ) -> None:
        """Wait for the other known answers of a query, which come in messages of their own."""
        at_s, query, before = self.held.get(source) or (
            now_s + random.uniform(*MORE_ANSWERS_S),
            message,
            set(),
        )
        if source in self.held or len(self.held) < MOST_HELD:
            self.held[source] = (at_s, query, before | known)

    def _answer(
        self,
        message: Message,
        source: Any,
        known: set[tuple[int, bytes]],
        now_s: float,
        defends: bool = False,
    ) -> None:
        """Answer all on the link, or, where it asks for that and all have heard it, the source."""
        if self.state != PUBLISHED:
            return
        own = [question for question in message.questions if question.name == self.name]
        answers, others = self._chosen(own)
        answers = [each for each in answers if (each.kind, each.rdata) not in known]
        if not answers:
            return
        since_s = now_s - self.sent_s
        by_unicast = all(question.takes_unicast for question in own) and since_s < TTL_S / 4
        if by_unicast:
            self.send(packets.write_response(answers, others), source)
        if defends or not by_unicast:
            if since_s >= (DEFEND_AGAIN_S if defends else REPEAT_S):
                self.sent_s = now_s
                self.send(packets.write_response(answers, others), None)
            elif not by_unicast:  # All have just heard it; who has not, does so in a moment.
                self.repeat_s = self.sent_s + REPEAT_S

    def _answer_plainly(self, message: Message, source: Any) -> None:
        """Answer a resolver that speaks plain DNS."""
        own = [question for question in message.questions if question.name == self.name]
        answers, others = self._chosen(own)
        if answers:
            asked = (message.number, own)
            self.send(packets.write_response(answers, others, asked), source)

    def _chosen(self, questions: Sequence[Question]) -> tuple[list[Record], list[Record]]:
        """The records that answer these questions, and what may be asked next."""
        asked = {each.kind for each in questions if each.klass & ~packets.TOP_BIT in (1, 255)}
        if not asked:
            return [], []
        if ANY in asked:
            return list(self.records), []
        chosen = [each for each in self.records if each.kind in asked]
        kinds = sorted({each.kind for each in self.records})
        absent = self._record(NSEC, packets.nsec_data(self.name, kinds))
        if asked - set(kinds):  # Says that there is no such record, so that nobody waits for one.
            chosen.append(absent)
        others = [e for e in self.records if e.kind in (A, AAAA) and e not in chosen]
        return chosen, others

    # ── records of others ───────────────────────────────────────────────────────────────────

    def _is_known(self, record: Record) -> bool:
        """Whether a known answer lives for as long again as not to need ours."""
        return record.name == self.name and record.ttl_s >= TTL_S / 2

    def _are_own(self, records: Sequence[Record]) -> bool:
        own = {(each.kind, each.rdata) for each in self.records}
        return all((each.kind, each.rdata) in own for each in records)

    def _differ(self, records: Sequence[Record]) -> bool:
        """Whether another machine has the name, by what it says of it."""
        own = {(each.kind, each.rdata) for each in self.records}
        kinds = (A, AAAA, CNAME, TXT)
        return any(e.kind in kinds and (e.kind, e.rdata) not in own for e in records)

    def _order_in(self, records: Sequence[Record]) -> int | None:
        """The order of another node of the same reservation; None: they are of nobody of ours."""
        for record in records:
            if record.kind == TXT:
                mark, *rest = [*packets.words_of(record.rdata), ""]
                digits = rest[0].partition("order=")[2]
                if mark == self._mark and digits.isdigit() and len(digits) < 20:
                    return int(digits)
        return None


def _packed(address: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def _addresses(records: Sequence[Record]) -> tuple[str, ...]:
    """The first addresses in records of anybody."""
    sizes = {A: (4, socket.AF_INET), AAAA: (16, socket.AF_INET6)}
    found = []
    for record in records:
        size, family = sizes.get(record.kind, (0, None))
        if family is not None and len(record.rdata) == size:
            found.append(socket.inet_ntop(family, record.rdata))
    return tuple(found[:MOST_NAMED])


def _named(records: Sequence[Record]) -> str:
    return ", ".join(_addresses(records)) or "it says no address"
