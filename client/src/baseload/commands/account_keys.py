"""Keys of several accounts of one person: each is kept in a profile, by which accounts switch."""

from __future__ import annotations

from dataclasses import replace

from baseload.commands.login import account_of
from baseload.commands.session import MistakeError, Session
from baseload.configuration import load_configuration, load_profiles, settings_folder
from baseload.errors import ApiError
from baseload.profiles import Profile, Profiles, is_profile_name, write_profiles


def keep_key(session: Session, account_id: str, key: str) -> str:
    """Keep a key of another account in a profile, beside the one in use; the profile's name."""
    now = load_configuration(session.url, profile=session.profile)
    profile = Profile(now.url, key, now.allow_plain_http)
    profiles = load_profiles()
    name = str(account_of(profile)["name"])
    if not is_profile_name(name) or name in profiles.by_name:
        name = account_id
    kept = replace(profiles, by_name={**profiles.by_name, name: profile})
    write_profiles(settings_folder(), kept)
    return name


def use_account(session: Session, account: str) -> str:
    """Use the profile whose key is of an account from now on; the profile's name.

    account: the name of the profile, or the id or name of the account.
    Raises: MistakeError, when no key of it is kept here.
    """
    profiles = load_profiles()
    name = account if account in profiles.by_name else _profile_of(session, profiles, account)
    write_profiles(settings_folder(), profiles.used(name))
    return name


def _profile_of(session: Session, profiles: Profiles, account: str) -> str:
    url = load_configuration(session.url, profile=session.profile).url
    for name, profile in sorted(profiles.by_name.items()):
        if profile.url.rstrip("/") != url.rstrip("/"):
            continue
        try:
            found = account_of(profile)
        except ApiError:  # A key that has ended is of no account.
            continue
        if account in (found["id"], found["name"]):
            return name
    raise MistakeError(
        f"no key of account {account} is kept here: accept an invitation to it, or have one of its "
        f"owners make a key for you, and keep it: baseload login --profile {account}"
    )
