"""`baseload login`: keeps the address and the key of an API in a profile."""

from __future__ import annotations

import getpass
import os
import sys
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.configuration import (
    DEFAULT_URL,
    Configuration,
    beaten_by,
    load_profiles,
    settings_folder,
    with_scheme,
)
from baseload.profiles import DEFAULT, VARIABLE, Profile, is_profile_name, write_profiles

app = new_app()


@command(app)
def login(
    session: Session,
    plain_http: Annotated[
        bool,
        typer.Option("--allow-plain-http", help="send the key unencrypted to another machine"),
    ] = False,
) -> None:
    """Check an address and a key, and keep them in a profile, which is used from now on.

    Both are asked for; without a terminal the address is --api, and the key is read from stdin.
    """
    name = session.profile or os.environ.get(VARIABLE) or DEFAULT
    if not is_profile_name(name):
        raise MistakeError(f"--profile {name}: asked letters, digits, dots, dashes, underscores")
    profiles = load_profiles()
    known = profiles.by_name.get(name)
    url = with_scheme(session.url or _asked_url(known.url if known else DEFAULT_URL))
    profile = Profile(url, _asked_key(url), plain_http)
    account = account_of(profile)
    path = write_profiles(settings_folder(), profiles.with_profile(name, profile))
    if session.screen.as_json:
        session.screen.json({"profile": name, "url": url, "account": account})
        return
    session.screen.result(f"{name}: {url}, account {account['name']} ({account['id']})")
    session.screen.say(f"kept in {path}{beaten_by(name)}")


def _asked_url(default: str) -> str:
    if not sys.stdin.isatty():
        return default
    return str(typer.prompt("address of the API", default=default, err=True)).strip()


def _asked_key(url: str) -> str:
    """Raises: MistakeError, when there is no key."""
    if sys.stdin.isatty():
        key = getpass.getpass(f"key for {url}: ").strip()
    else:
        key = sys.stdin.readline().strip()
    if not key or not key.isascii() or not key.isprintable():
        raise MistakeError("the key: asked one line, such as baseload key create prints")
    return key


def account_of(profile: Profile) -> Document:
    """The account of the key.

    Raises: ApiError, when the key is not taken; UnreachableError; ConfigurationError, when the key
    would be sent unencrypted.
    """
    from baseload._sync.transport import Transport
    from baseload.calls import Call

    configuration = Configuration(profile.url, profile.key, None, profile.allow_plain_http)
    transport = Transport(configuration)
    try:
        return dict(transport.json(Call("GET", "/v1/account")))
    finally:
        transport.close()
