"""Builds `.baseload/bin/tctl` from its pin on demand; tctl works with the running stack."""

from console import CACHE, CHECKOUT, main_of, say
from gobuild import build

VERSION = "1.18.0"
LINK = CHECKOUT / ".baseload" / "bin" / "tctl"


def set_up_tctl() -> None:
    package = "github.com/temporalio/tctl/cmd/tctl"
    target = CACHE / f"tctl-{VERSION}"
    program = build(CHECKOUT / "deploy" / "tctl", package, target, "about 2 minutes on two cores")
    LINK.parent.mkdir(parents=True, exist_ok=True)
    LINK.unlink(missing_ok=True)
    LINK.symlink_to(program)
    say(f"tctl: {LINK}  (try: {LINK.relative_to(CHECKOUT)} workflow list --open)")


if __name__ == "__main__":
    main_of(set_up_tctl)
