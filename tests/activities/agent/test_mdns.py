"""Hostnames of runs: messages of anybody are read within bounds, and RFC 6762 is followed."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from activities.agent.mdns import packets
from activities.agent.mdns.packets import (
    AAAA,
    ANY,
    IN,
    NSEC,
    TOP_BIT,
    TXT,
    A,
    Message,
    Question,
    Record,
)
from activities.agent.mdns.responder import (
    CONFLICT,
    LEFT,
    PUBLISHED,
    Responder,
)

NAME = packets.name_of("web.local")
OWN, RIVAL = "10.7.0.1", "10.7.0.9"
ANYBODY = ("10.7.0.5", 5353)
HEADER = struct.Struct(">HHHHHH")


class Air:
    """A responder, the time that it lives in, and what it has sent and said."""

    def __init__(self, order: int = 5) -> None:
        self.now_s = 100.0
        self.sent: list[tuple[Message, Any]] = []
        self.said: list[tuple[str, tuple[str, ...]]] = []
        self.responder = Responder("web.local", "rsv-1", order, self._send, self._report)
        self.responder.take_addresses([OWN], [], self.now_s)
        self.responder.begin(self.now_s)

    def _send(self, packet: bytes, to: Any) -> None:
        message = packets.read(packet)
        assert message is not None
        self.sent.append((message, to))

    def _report(self, state: str, addresses: Sequence[str], message: str) -> None:
        assert "web.local" in message
        self.said.append((state, tuple(addresses)))

    def pass_time(self, seconds: float) -> None:
        """Let the responder do what is due, each thing at its time."""
        until_s = self.now_s + seconds
        while (due_s := self.responder.wait_until_s()) <= until_s:
            self.now_s = max(self.now_s, due_s)
            self.responder.work(self.now_s)
        self.now_s = until_s

    def published(self, order: int = 5) -> Air:
        self.pass_time(5)
        assert self.responder.state == PUBLISHED
        self.sent.clear()
        return self

    def hear(self, packet: bytes, source: Any = ANYBODY) -> None:
        self.responder.take(packet, source, source[1], self.now_s)

    def ask(
        self, kind: int = A, *, unicast: bool = False, known: Sequence[Record] = ()
    ) -> list[tuple[Message, Any]]:
        """What is sent at once for a question."""
        self.sent.clear()
        self.hear(query([Question(NAME, kind, IN | (TOP_BIT if unicast else 0))], known))
        return self.sent


def query(
    questions: Sequence[Question], known: Sequence[Record] = (), flags: int = 0, number: int = 0
) -> bytes:
    """A query with known answers."""
    head = HEADER.pack(number, flags, len(questions), len(known), 0, 0)
    body = b""
    for asked in questions:
        body += packets.write_name(asked.name) + struct.pack(">HH", asked.kind, asked.klass)
    for each in known:
        fixed = struct.pack(">HHIH", each.kind, IN, each.ttl_s, len(each.rdata))
        body += packets.write_name(each.name) + fixed + each.rdata
    return head + body


def address(text: str, ttl_s: int = 120) -> Record:
    return Record(NAME, A, socket.inet_aton(text), ttl_s)


def mark(order: int, reservation: str = "rsv-1") -> Record:
    return Record(NAME, TXT, packets.text_data([f"baseload={reservation}", f"order={order}"]), 120)


def claims(*records: Record) -> bytes:
    """What another machine says that it has."""
    return packets.write_response(records)


def probe(*records: Record) -> bytes:
    return packets.write_query([Question(NAME, ANY, IN | TOP_BIT)], records)


def contents(message: Message) -> set[tuple[int, bytes, int, bool]]:
    return {(r.kind, r.rdata, r.ttl_s, r.flushes) for r in message.answers}


# ── messages ────────────────────────────────────────────────────────────────────────────────────


@given(some.binary(max_size=600))
@settings(max_examples=300, deadline=None)
def test_whatever_is_read_is_a_message_within_bounds_or_none(packet: bytes) -> None:
    message = packets.read(packet)
    if message is not None:
        records = [*message.answers, *message.authorities, *message.others]
        names = [each.name for each in message.questions] + [each.name for each in records]
        assert len(names) <= packets.MOST_ENTRIES
        assert all(sum(len(label) + 1 for label in name) < 256 for name in names)


@given(some.data())
@settings(max_examples=100, deadline=None)
def test_a_changed_byte_of_a_message_makes_no_more_of_it_than_none(data: some.DataObject) -> None:
    packet = bytearray(claims(address(OWN), mark(3)))
    packet[data.draw(some.integers(0, len(packet) - 1))] = data.draw(some.integers(0, 255))
    air = Air().published()
    air.hear(bytes(packet))
    assert air.responder.state in (PUBLISHED, CONFLICT, LEFT, "probing")


@pytest.mark.parametrize(
    "name",
    [
        b"\xc0\x0c",
        b"\x01a\xc0\x0c",
        b"\xc0\x0e\xc0\x0c",
        b"\xc0\x20",
        b"\x40a\0",
        b"\x3fa",
        b"\xc0",
    ],
    ids=["itself", "its own start", "each other", "forwards", "unknown kind", "cut", "half"],
)
def test_a_name_that_leads_in_a_circle_or_nowhere_is_none(name: bytes) -> None:
    assert packets.read(HEADER.pack(0, 0, 1, 0, 0, 0) + name + struct.pack(">HH", A, IN)) is None


def test_a_chain_of_pointers_never_makes_a_name_longer_than_a_name_is() -> None:
    """Each label is followed by a pointer to the one before: 9000 bytes, read in no time."""
    body = b"\x3f" + b"a" * 63 + b"\0"
    for _ in range(100):
        start = 12 + len(body) - (65 if len(body) == 65 else 66)
        body += b"\x3f" + b"b" * 63 + struct.pack(">H", 0xC000 | start)
    last = 12 + len(body) - 66
    body += struct.pack(">H", 0xC000 | last) + struct.pack(">HH", A, IN)
    assert packets.read(HEADER.pack(0, 0, 102, 0, 0, 0) + body) is None


def test_compressed_names_of_others_are_read() -> None:
    head = HEADER.pack(0, packets.RESPONSE, 0, 2, 0, 0)
    first = packets.write_name(NAME) + struct.pack(">HHIH", A, IN | TOP_BIT, 120, 4) + b"\1\2\3\4"
    second = b"\xc0\x0c" + struct.pack(">HHIH", AAAA, IN, 120, 16) + bytes(16)
    message = packets.read(head + first + second)
    assert message is not None
    found = [(each.name, each.kind, each.flushes) for each in message.answers]
    assert found == [(NAME, A, True), (NAME, AAAA, False)]


def test_more_than_256_entries_are_not_read() -> None:
    questions = [Question(packets.name_of(f"x{n}.local"), A, IN) for n in range(300)]
    message = packets.read(query(questions))
    assert message is not None
    assert len(message.questions) == packets.MOST_ENTRIES


# ── probing and publishing ──────────────────────────────────────────────────────────────────────


def test_the_name_is_probed_for_three_times_and_then_announced_three_times() -> None:
    air = Air()
    air.pass_time(5)
    probes, announcements = air.sent[:3], air.sent[3:]
    for message, to in probes:
        asked = {(q.name, q.kind, q.takes_unicast) for q in message.questions}
        assert (to, (NAME, ANY, True) in asked) == (None, True)
        assert [r.rdata for r in message.authorities if r.kind == A] == [socket.inet_aton(OWN)]
    assert len(announcements) == 3
    for message, to in announcements:
        assert (to, message.is_response) == (None, True)
        assert (A, socket.inet_aton(OWN), 120, True) in contents(message)
    assert air.said == [(PUBLISHED, (OWN,))]


def test_the_name_is_published_within_two_seconds() -> None:
    air = Air()
    air.pass_time(1.01)
    assert air.said == [(PUBLISHED, (OWN,))]


def test_at_the_end_the_name_is_taken_back() -> None:
    air = Air().published()
    air.responder.end()
    ((message, to),) = air.sent
    assert (to, {ttl for _, _, ttl, _ in contents(message)}) == (None, {0})
    assert air.ask() == []


def test_a_name_that_was_not_published_is_not_taken_back() -> None:
    air = Air()
    air.responder.end()
    assert air.sent == []


def test_another_address_of_the_node_is_announced_in_place_of_the_first() -> None:
    air = Air().published()
    air.responder.take_addresses(["10.7.0.2"], ["fd00::2"], air.now_s)
    air.pass_time(5)
    assert len(air.sent) == 3
    kinds = {(kind, flushes) for kind, _, _, flushes in contents(air.sent[0][0])}
    assert kinds == {(A, True), (AAAA, True), (TXT, True)}
    assert air.said[-1] == (PUBLISHED, ("10.7.0.2", "fd00::2"))


# ── answers ─────────────────────────────────────────────────────────────────────────────────────


def test_a_question_is_answered_to_all_and_one_for_unicast_to_who_asks() -> None:
    air = Air().published()
    assert [to for _, to in air.ask()] == [None]
    assert [to for _, to in air.ask(unicast=True)] == [ANYBODY]


def test_who_asks_for_unicast_a_while_after_the_last_answer_gets_it_with_all() -> None:
    air = Air().published()
    air.pass_time(31)  # A quarter of the life of a record: caches may be about to lose it.
    assert [to for _, to in air.ask(unicast=True)] == [None]


def test_what_is_known_is_not_answered_unless_it_lives_for_less_than_half() -> None:
    air = Air().published()
    assert air.ask(known=[address(OWN, 60)]) == []
    assert len(air.ask(known=[address(OWN, 59)])) == 1


def test_known_answers_in_several_messages_are_waited_for() -> None:
    air = Air().published()
    question = [Question(NAME, A, IN)]
    air.hear(query(question, flags=packets.TRUNCATED))
    air.hear(query([], [address(OWN)]))
    air.pass_time(1)
    assert air.sent == []
    air.hear(query(question, flags=packets.TRUNCATED))
    air.pass_time(1)
    assert len(air.sent) == 1


def test_many_who_ask_at_once_get_two_answers_in_two_seconds() -> None:
    air = Air().published()
    for number in range(200):
        air.hear(query([Question(NAME, A, IN)]), (f"10.7.1.{number}", 5353))
    air.pass_time(2)
    assert len(air.sent) == 2


def test_a_type_that_the_name_has_not_is_denied_and_not_waited_for() -> None:
    ((message, _),) = Air().published().ask(AAAA)
    (denial,) = [each for each in message.answers if each.kind == NSEC]
    assert denial.rdata == packets.nsec_data(NAME, [A, TXT])
    assert [each.kind for each in message.others] == [A]


def test_a_resolver_of_plain_dns_gets_its_question_back_and_a_short_life() -> None:
    air = Air().published()
    plain = ("10.7.0.5", 40_000)
    air.hear(query([Question(NAME, A, IN)], number=77), plain)
    ((message, to),) = air.sent
    assert (message.number, len(message.questions), to) == (77, 1, plain)
    assert contents(message) == {(A, socket.inet_aton(OWN), 10, False)}


@pytest.mark.parametrize("name", ["other.local", "web.local.example", "web"])
def test_a_question_for_another_name_is_not_answered(name: str) -> None:
    air = Air().published()
    air.hear(query([Question(packets.name_of(name), A, IN)]))
    assert air.sent == []


def test_the_case_of_a_name_makes_no_difference() -> None:
    air = Air().published()
    air.hear(query([Question((b"WEB", b"Local"), A, IN)]))
    assert len(air.sent) == 1


# ── conflicts ───────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_another_machine_has_is_not_taken_until_it_goes() -> None:
    air = Air()
    air.pass_time(0.3)
    air.hear(claims(address(RIVAL)))
    assert air.said == [(CONFLICT, (RIVAL,))]
    air.sent.clear()
    air.pass_time(4.9)
    assert (air.sent, air.ask()) == ([], [])
    air.pass_time(2)
    assert air.said[-1] == (PUBLISHED, (OWN,))


def test_a_lasting_conflict_is_asked_about_ever_more_slowly_up_to_once_a_minute() -> None:
    air = Air()
    for pause_s in (5, 10, 20, 40, 60, 60):
        air.pass_time(0.5)
        air.hear(claims(address(RIVAL)))
        assert air.responder.state == CONFLICT
        air.pass_time(pause_s - 0.01)
        assert air.responder.state == CONFLICT
        air.pass_time(0.02)


def test_a_later_claim_to_the_published_name_is_said_and_probed_at_once_but_once() -> None:
    """Who defends the name keeps it; else it is published again, and no claim makes it flap."""
    air = Air().published()
    air.hear(claims(address(RIVAL)))
    air.pass_time(1.1)
    assert [state for state, _ in air.said] == [PUBLISHED, CONFLICT, PUBLISHED]
    air.hear(claims(address(RIVAL)))
    air.pass_time(9)
    assert [state for state, _ in air.said] == [PUBLISHED, CONFLICT, PUBLISHED, CONFLICT]


def test_a_probe_for_the_published_name_is_answered_at_once() -> None:
    air = Air().published()
    air.hear(probe(address(RIVAL)))
    assert {to for _, to in air.sent} == {None, ANYBODY}
    assert air.responder.state == PUBLISHED


def test_of_two_that_probe_at_once_the_one_with_the_later_records_goes_on() -> None:
    """As RFC 6762 §8.2 orders them; the other one waits for a second, and asks again."""
    earlier, later = "10.0.0.1", "10.9.0.1"
    winner, loser = Air(), Air()
    for air, other in ((winner, earlier), (loser, later)):
        air.pass_time(0.3)
        air.hear(probe(address(other)))
    winner.pass_time(0.8)
    loser.pass_time(0.8)
    assert (winner.said, loser.said) == ([(PUBLISHED, (OWN,))], [])
    loser.pass_time(1.2)
    assert loser.said == [(PUBLISHED, (OWN,))]  # the other one is silent by now


def test_what_it_has_sent_itself_is_no_conflict() -> None:
    air = Air()
    for _ in range(12):
        air.pass_time(0.25)
        for message, _ in list(air.sent):
            air.hear(
                claims(*message.answers) if message.is_response else probe(*message.authorities)
            )
    assert air.said == [(PUBLISHED, (OWN,))]


def test_a_goodbye_of_another_machine_and_a_response_from_another_port_are_no_conflict() -> None:
    air = Air().published()
    air.hear(claims(address(RIVAL, 0)))
    air.hear(claims(address(RIVAL)), ("10.7.0.9", 40_000))
    assert air.responder.state == PUBLISHED


# ── from node to node ───────────────────────────────────────────────────────────────────────────


def test_the_node_that_got_the_reservation_later_takes_the_name_over_at_once() -> None:
    air = Air(order=5)
    air.pass_time(0.3)
    air.hear(claims(address(RIVAL), mark(4)))  # the earlier node defends the name
    assert air.said == [(PUBLISHED, (OWN,))]


@pytest.mark.parametrize("way", [claims, probe], ids=["claims", "probe"])
def test_the_node_that_had_it_before_leaves_without_a_word(way: Any) -> None:
    air = Air(order=5).published()
    air.hear(way(address(RIVAL), mark(6)))
    assert (air.responder.state, air.said[-1]) == (LEFT, (CONFLICT, (RIVAL,)))
    air.responder.end()
    air.pass_time(100)
    assert (air.sent, air.ask()) == ([], [])


def test_a_probe_from_another_port_takes_nothing_over() -> None:
    """A job may ask on the link, from any port but that of mDNS, and reads our mark there."""
    for air in (Air(), Air().published()):
        before = air.responder.state
        air.hear(probe(address(RIVAL), mark(2**63)), (RIVAL, 40_000))
        assert air.responder.state == before
        air.pass_time(5)
        assert air.responder.state == PUBLISHED


def test_the_mark_of_another_reservation_or_without_a_number_is_a_conflict() -> None:
    for other in (mark(6, "rsv-2"), Record(NAME, TXT, packets.text_data(["baseload=rsv-1"]), 120)):
        air = Air()
        air.pass_time(0.3)
        air.hear(claims(address(RIVAL), other))
        assert air.said == [(CONFLICT, (RIVAL,))]
