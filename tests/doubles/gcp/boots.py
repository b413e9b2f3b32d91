"""Which machines stand behind the VMs of a double."""

from __future__ import annotations

from tests.doubles.gcp.boot import Boot, NoBoot
from tests.doubles.gcp.contained_boot import ContainedBoot
from tests.doubles.gcp.plain_boot import PlainBoot
from tests.lab.host import obstacle

NAMES = ("usual", "contained", "plain", "none")


def boot_named(name: str = "usual") -> Boot:
    """`contained`, `plain` or `none`; `usual` is contained where this host allows it, else plain.

    Whole machines of a test's own lab: `lab_boot.LabBoot(lab)`. One more: a class with the methods
    of `Boot`.
    """
    if name == "usual":
        name = "contained" if obstacle() is None else "plain"
    kinds: dict[str, type[Boot]] = {"contained": ContainedBoot, "plain": PlainBoot, "none": NoBoot}
    return kinds[name]()
