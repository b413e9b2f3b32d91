"""DNS messages of mDNS (RFC 1035, RFC 6762): ours are written, those of anybody are read.

A message comes from whoever is on the link, so that reading is bounded: a pointer of a compressed
name leads backwards alone, a name has 255 bytes, a message 256 questions and records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

A, CNAME, TXT, AAAA, NSEC, ANY = 1, 5, 16, 28, 47, 255
IN = 1
PORT = 5353
TOP_BIT = 0x8000
"""Of the class: in a question, that the answer may come by unicast; in a record, that it replaces
all others of its name and type in caches."""
RESPONSE, AUTHORITATIVE, TRUNCATED, OPCODE = 0x8000, 0x0400, 0x0200, 0x7800
MOST_BYTES = 9000
MOST_NAME_BYTES = 255
MOST_ENTRIES = 256
"""The questions and records of one message that are read; what comes after them is not."""
_HEADER = struct.Struct(">HHHHHH")
_FIXED = struct.Struct(">HHIH")
_QUESTION = struct.Struct(">HH")

if TYPE_CHECKING:  # Python 3.8 has no such type.
    Name = tuple[bytes, ...]
    """The labels of a name as bytes, in lower case."""


class Question:
    """A question of a message."""

    __slots__ = ("kind", "klass", "name")

    def __init__(self, name: Name, kind: int, klass: int) -> None:
        self.name = name
        self.kind = kind
        self.klass = klass

    @property
    def takes_unicast(self) -> bool:
        return bool(self.klass & TOP_BIT)


class Record:
    """A record of a message, of class IN."""

    __slots__ = ("flushes", "kind", "name", "rdata", "ttl_s")

    def __init__(
        self, name: Name, kind: int, rdata: bytes, ttl_s: int, flushes: bool = True
    ) -> None:
        self.name = name
        self.kind = kind
        self.rdata = rdata
        self.ttl_s = ttl_s
        self.flushes = flushes

    @property
    def key(self) -> tuple[int, int, bytes]:
        """By which RFC 6762 §8.2 orders the records of two probes: class, type, data."""
        return IN, self.kind, self.rdata


class Message:
    """A message, as far as it is read."""

    __slots__ = ("answers", "authorities", "flags", "number", "others", "questions")

    def __init__(self, number: int, flags: int) -> None:
        self.number = number
        self.flags = flags
        self.questions: list[Question] = []
        self.answers: list[Record] = []
        self.authorities: list[Record] = []
        self.others: list[Record] = []

    @property
    def is_response(self) -> bool:
        return bool(self.flags & RESPONSE)

    @property
    def goes_on(self) -> bool:
        """Whether more known answers follow in another message."""
        return bool(self.flags & TRUNCATED)


def name_of(text: str) -> Name:
    """The name of `lab.local`."""
    return tuple(label.encode().lower() for label in text.strip(".").split("."))


def read(packet: bytes) -> Message | None:
    """The message in a packet; None, when it is none, or of another kind than query and answer."""
    if not _HEADER.size <= len(packet) <= MOST_BYTES:
        return None
    number, flags, *counts = _HEADER.unpack_from(packet)
    if flags & OPCODE or flags & 0x000F:
        return None
    message = Message(number, flags)
    at, left = _HEADER.size, MOST_ENTRIES
    try:
        for _ in range(min(counts[0], left)):
            name, at = _read_name(packet, at)
            kind, klass = _QUESTION.unpack_from(packet, at)
            at += _QUESTION.size
            message.questions.append(Question(name, kind, klass))
            left -= 1
        if counts[0] > len(message.questions):
            return message
        for count, records in zip(
            counts[1:], (message.answers, message.authorities, message.others)
        ):
            for _ in range(min(count, left)):
                at = _read_record(packet, at, records)
                left -= 1
    except (IndexError, ValueError, struct.error):
        return None
    return message


def _read_record(packet: bytes, at: int, records: list[Record]) -> int:
    name, at = _read_name(packet, at)
    kind, klass, ttl_s, length = _FIXED.unpack_from(packet, at)
    at += _FIXED.size
    if at + length > len(packet):
        raise ValueError("the data of a record ends behind its message")
    if klass & ~TOP_BIT == IN:
        flushes = bool(klass & TOP_BIT)
        records.append(Record(name, kind, packet[at : at + length], ttl_s, flushes))
    end: int = at + length
    return end


def _read_name(packet: bytes, at: int) -> tuple[Name, int]:
    """The name at a byte, and the byte behind it. Raises: IndexError, ValueError."""
    labels: list[bytes] = []
    size, end, earliest = 0, 0, at
    while True:
        length = packet[at]
        if length & 0xC0 == 0xC0:
            target = (length & 0x3F) << 8 | packet[at + 1]
            end = end or at + 2
            if target >= earliest:  # Else two pointers could lead to each other for ever.
                raise ValueError("a pointer leads forwards")
            at = earliest = target
            continue
        if length & 0xC0:
            raise ValueError("a label of an unknown kind")
        if length == 0:
            return tuple(labels), end or at + 1
        size += length + 1
        label = packet[at + 1 : at + 1 + length]
        if len(label) < length or size >= MOST_NAME_BYTES:
            raise ValueError("a name is too long")
        labels.append(label.lower())
        at += 1 + length


def write_name(name: Name) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in name) + b"\0"


def write_query(questions: Sequence[Question], authorities: Sequence[Record]) -> bytes:
    """A query; with authorities it is a probe."""
    parts = [_HEADER.pack(0, 0, len(questions), 0, len(authorities), 0)]
    parts += [_write_question(each) for each in questions]
    # What a probe is to get is not there yet, and replaces nothing.
    parts += [_write_record(each, flushes=False) for each in authorities]
    return b"".join(parts)


def write_response(
    answers: Sequence[Record],
    others: Sequence[Record] = (),
    asked: tuple[int, Sequence[Question]] | None = None,
) -> bytes:
    """A response.

    asked: number and questions of a resolver that speaks plain DNS, which wants them back, a short
    life of the answers, and no bit that plain DNS does not know.
    """
    number, questions = asked or (0, ())
    head = _HEADER.pack(
        number, RESPONSE | AUTHORITATIVE, len(questions), len(answers), 0, len(others)
    )
    parts = [head, *(_write_question(each) for each in questions)]
    for record in (*answers, *others):
        if asked is None:
            parts.append(_write_record(record, flushes=record.flushes))
        else:
            short = Record(record.name, record.kind, record.rdata, min(record.ttl_s, 10))
            parts.append(_write_record(short, flushes=False))
    return b"".join(parts)


def _write_question(question: Question) -> bytes:
    return write_name(question.name) + _QUESTION.pack(question.kind, question.klass)


def _write_record(record: Record, flushes: bool) -> bytes:
    klass = IN | TOP_BIT if flushes else IN
    fixed = _FIXED.pack(record.kind, klass, record.ttl_s, len(record.rdata))
    return write_name(record.name) + fixed + record.rdata


def text_data(words: Sequence[str]) -> bytes:
    """The data of a TXT record."""
    return b"".join(bytes((len(word),)) + word for word in (each.encode()[:255] for each in words))


def words_of(rdata: bytes) -> list[str]:
    """The words of the data of a TXT record, which anybody may have written."""
    words, at = [], 0
    while at < len(rdata):
        length = rdata[at]
        words.append(rdata[at + 1 : at + 1 + length].decode("ascii", "replace"))
        at += 1 + length
    return words


def nsec_data(name: Name, kinds: Sequence[int]) -> bytes:
    """The data of an NSEC record: of all types below 256, the name has these alone."""
    bits = bytearray(32)
    for kind in kinds:
        bits[kind >> 3] |= 0x80 >> (kind & 7)
    used = bytes(bits).rstrip(b"\0")
    return write_name(name) + bytes((0, len(used))) + used
