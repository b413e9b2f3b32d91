"""The effect by which sessions begin: the site connects to the API, and serves them there."""

from workflows.contracts.base import Contract
from workflows.effects.effect import Effect, SiteCommand


class OpenTrunk(SiteCommand):
    """Connect to the API process that asks, for the sessions of one run on this node.

    sealed: a `TrunkOrder`, which the site of the region alone can read.
    """

    trunk_id: str
    run_id: str
    sealed: str


class TrunkOpened(Contract):
    """Whether the site serves the trunk."""

    reason: str | None = None
    """Why it does not; None: it does."""


open_trunk = Effect(
    "open_trunk",
    OpenTrunk,
    TrunkOpened,
    queue=None,
    start_to_close_s=12,
    schedule_to_close_s=14,
    attempts=1,
)
"""Somebody waits for it: who gets no answer asks again, which makes another trunk."""
