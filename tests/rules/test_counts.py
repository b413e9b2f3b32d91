"""Counts in messages."""

from workflows.rules.counts import counted, some_of


def test_one_of_something_is_said_in_the_singular() -> None:
    assert [counted(count, "node") for count in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [counted(count, "try", "tries") for count in (1, 2)] == ["1 try", "2 tries"]


def test_of_many_names_some_are_said_and_the_rest_counted() -> None:
    assert [some_of(names, 2) for names in ("", "a", "ab", "abc")] == [
        "", "a", "a, b", "a, b and 1 more",
    ]  # fmt: skip
