"""Streams of events: read as the standard says, however the network cuts the bytes."""

import itertools

from baseload.server_events import EventReader, ServerEvent
from hypothesis import given
from hypothesis import strategies as st

STREAM = (
    ": open\n\n"
    'id: 7\ndata: {"text": "ä\u2028ö"}\n\n'
    "event: end\r\ndata: {}\r\n\r\n"
    "id: 9\rdata: two\rdata: lines\r\r"
    "data:no blank\n\n"
    "data: begun and cut"
).encode()
EVENTS = [
    ServerEvent('{"text": "ä\u2028ö"}', "message", "7"),
    ServerEvent("{}", "end", "7"),
    ServerEvent("two\nlines", "message", "9"),
    ServerEvent("no blank", "message", "9"),
]


def test_events_are_read_as_the_standard_says() -> None:
    assert EventReader().feed(STREAM) == EVENTS


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_where_the_bytes_are_cut_changes_nothing(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    reader = EventReader()
    events = [
        event
        for begin, end in itertools.pairwise(places)
        for event in reader.feed(STREAM[begin:end])
    ]
    assert events == EVENTS
