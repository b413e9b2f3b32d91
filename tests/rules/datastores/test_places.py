"""The places of datastores: the agent's own rules of paths are the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from activities.agent.datastores.share import parts_of
from activities.agent.errors import RefusedError
from workflows.rules.datastores.places import parse_address, path_mistake, root_path_mistake

_PIECES = st.sampled_from(
    ["a", "..", ".", "/", "\\", " ", "\0", ":", "*", "\uff0e", "\u2024", "ä", "x" * 200, "."]
)


@given(st.lists(_PIECES, max_size=8).map("".join), st.booleans())
def test_the_agent_and_the_platform_refuse_the_same_paths(path: str, is_smb: bool) -> None:
    try:
        names = parts_of(path, is_smb=is_smb)
    except RefusedError:
        assert path_mistake(path, is_smb=is_smb) is not None
    else:
        assert path_mistake(path, is_smb=is_smb) is None
        assert not {"..", ".", ""} & set(names)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("nas", ("nas", None)),
        ("nas.lab.example:2049", ("nas.lab.example", 2049)),
        ("10.0.0.4:445", ("10.0.0.4", 445)),
        ("[fd00::4]:445", ("fd00::4", 445)),
        ("[fd00::4]", ("fd00::4", None)),
        ("fd00::4", None),
        ("nas:99999", None),
        ("nas:", None),
        ("", None),
        ("-x", None),
        ("nas,vers=2", None),
        ("user@nas", None),
    ],
)
def test_an_address_is_a_host_and_perhaps_a_port(
    address: str, found: tuple[str, int | None] | None
) -> None:
    assert parse_address(address) == found


def test_a_root_path_is_absolute_and_names_a_share() -> None:
    assert root_path_mistake("/srv/lab", is_smb=False) is None
    assert root_path_mistake("/", is_smb=False) is None
    assert root_path_mistake("/data", is_smb=True) is None
    for path in ("srv", "", "/a/../b", "/a\nb"):
        assert root_path_mistake(path, is_smb=False) is not None
    assert root_path_mistake("/", is_smb=True) is not None
