"""What the platform asks of every kind of provider."""

from typing import Protocol

from workflows.contracts.provider import Check


class Provider(Protocol):
    """A source of machines."""

    def check(self) -> tuple[Check, ...]:
        """Look at everything that it needs; each check says what was found and what to do.

        Blocking; changes nothing.
        """
        ...
