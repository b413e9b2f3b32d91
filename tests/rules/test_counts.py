"""Counts in messages."""

from workflows.rules.counts import counted


def test_one_of_something_is_said_in_the_singular() -> None:
    assert [counted(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [counted(count, "try", "tries") for count in (1, 2)] == ["1 try", "2 tries"]
