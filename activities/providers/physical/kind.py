"""The provider kind of machines that owners bring; the keys of their regions open them over SSH."""

from activities.providers.base import Kind
from activities.secrets.platform_key import PlatformKeyError, platform_key_fingerprint
from activities.settings import settings
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind

OTHERS_MAY = 0o077


def check_platform_key(_: str) -> tuple[Check, ...]:
    """Check the platform key, which is all that this provider kind needs."""
    try:
        fingerprint = platform_key_fingerprint()
    except PlatformKeyError as error:
        return (Check(name="platform-key", status="failed", detail=str(error)),)
    found = Check(name="platform-key", status="passed", detail=fingerprint)
    return (found, _check_mode())


def _check_mode() -> Check:
    """Warn when other users of this machine can read the platform key."""
    path = settings().platform_key_path
    mode = path.stat().st_mode & 0o777
    if mode & OTHERS_MAY:
        detail = f"{path}: mode {mode:04o}, others can read it; run `chmod 600 {path}`"
        return Check(name="platform-key-mode", status="warning", detail=detail)
    return Check(name="platform-key-mode", status="passed", detail=f"{mode:04o}")


KIND = Kind(kind=ProviderKind.PHYSICAL, checks=check_platform_key)
