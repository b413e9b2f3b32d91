"""The words of onboarding: what people are told of a machine that is not reached."""

import pytest

from workflows.contracts import errors
from workflows.rules.nodes.onboarding import describe_loss, shown_cause


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (errors.HOST_KEY_MISMATCH, errors.NODE_UNREACHABLE),
        (errors.NODE_UNREACHABLE, errors.NODE_UNREACHABLE),
        (errors.LOGIN_REFUSED, errors.LOGIN_REFUSED),
    ],
)
def test_nobody_learns_that_a_strangers_machine_has_answered(kind: str, shown: str) -> None:
    assert shown_cause(kind) == shown


def test_the_loss_of_a_node_in_use_says_that_its_key_has_changed() -> None:
    lost = describe_loss(errors.HOST_KEY_MISMATCH, "nod-1: cannot be reached")
    assert lost.startswith("nod-1: cannot be reached; another host key")
    assert describe_loss(errors.NODE_UNREACHABLE, "nod-1: cannot be reached") == (
        "nod-1: cannot be reached"
    )
