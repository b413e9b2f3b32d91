"""Hostnames and ports of reservations."""

import pytest

from workflows.rules.reservations.names import (
    HIGHEST_PORT,
    HOSTNAME_RULE,
    LOWEST_PORT,
    hostname_mistake,
    port_mistake,
)


@pytest.mark.parametrize("hostname", ["a", "lab", "lab-2", "2", "xn--bcher-kva", "a" * 63])
def test_a_label_of_dns_in_lower_case_is_a_hostname(hostname: str) -> None:
    assert hostname_mistake(hostname) is None


@pytest.mark.parametrize(
    "hostname",
    ["", "Lab", "lab.local", "lab.", "-lab", "lab-", "lab_1", "bücher", "a" * 64, "lab\n", " lab"],
)
def test_what_is_no_label_is_none(hostname: str) -> None:
    assert hostname_mistake(hostname) == HOSTNAME_RULE


@pytest.mark.parametrize("hostname", ["localhost", "local", "wpad", "isatap"])
def test_names_with_a_meaning_of_their_own_are_none(hostname: str) -> None:
    assert hostname_mistake(hostname) == f"is not {hostname}, which has a meaning of its own"


@pytest.mark.parametrize("port", [LOWEST_PORT, 8888, HIGHEST_PORT])
def test_a_port_without_rights_can_be_reserved(port: int) -> None:
    assert port_mistake(port) is None


def test_a_port_of_the_platform_says_whose_it_is() -> None:
    assert port_mistake(5353) == "is not 5353, which is the port of mDNS"
    assert port_mistake(8710) == "is not 8710, which is the port of the region's cache"
    assert port_mistake(8700) == "is not 8700, which is the port of the API"
