"""Hosts of sources: whatever is wrong with one, its refusal says the same."""

import socket
from typing import Any

import pytest

from activities.artifacts.sources.source_addresses import (
    SourceAddressRefusedError,
    permitted_address,
)

NAMES = {"inner.example": "10.1.2.3", "here.example": "127.0.0.1", "outer.example": "192.0.43.8"}


@pytest.fixture(autouse=True)
def names(home: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        if host == "silent.example":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        if host not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (NAMES[host], port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


def test_nobody_learns_from_a_refusal_which_names_and_addresses_there_are() -> None:
    told = set()
    for host in ("inner.example", "here.example", "unknown.example"):
        with pytest.raises(SourceAddressRefusedError) as refused:
            permitted_address(host, 443)
        told.add(str(refused.value).replace(host, "HOST"))
    assert told == {"HOST: has no public address, see BASELOAD_SOURCE_NETWORKS"}
    assert permitted_address("outer.example", 443) == "192.0.43.8"


@pytest.mark.parametrize(
    "address",
    ["168.63.129.16", "::ffff:168.63.129.16", "::7f00:1", "fec0::1", "64:ff9b:1::7f00:1"],
)
def test_addresses_that_are_public_by_their_number_alone_are_none(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the first, Azure tells each of its machines what is set up there."""
    monkeypatch.setitem(NAMES, "wire.example", address)
    with pytest.raises(SourceAddressRefusedError):
        permitted_address("wire.example", 80)


def test_a_name_that_cannot_be_resolved_now_may_be_tried_again() -> None:
    with pytest.raises(OSError, match=r"^silent\.example: its name cannot be resolved now$") as now:
        permitted_address("silent.example", 443)
    assert not isinstance(now.value, SourceAddressRefusedError)
