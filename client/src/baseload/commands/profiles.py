"""`baseload profile`: addresses and keys under names, which `baseload login` keeps."""

from __future__ import annotations

from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import Session, command
from baseload.configuration import beaten_by, load_profiles, settings_folder
from baseload.profiles import write_profiles

app = new_app()
Name = Annotated[str, typer.Argument(help="of the profile")]


@command(app)
def ls(session: Session) -> None:
    """List profiles, the one in use with a star; keys are not shown."""
    profiles = load_profiles()
    if session.screen.as_json:
        items = [
            {"name": name, "url": profile.url, "is_current": name == profiles.current}
            for name, profile in sorted(profiles.by_name.items())
        ]
        session.screen.json({"items": items})
        return
    rows = [
        ["*" if name == profiles.current else " ", name, profile.url]
        for name, profile in sorted(profiles.by_name.items())
    ]
    session.screen.table(("", "name", "url"), rows)


@command(app)
def use(session: Session, name: Name) -> None:
    """Use a profile from now on, where no variable names another API."""
    write_profiles(settings_folder(), load_profiles().used(name))
    session.screen.say(f"in use: {name}{beaten_by(name)}")


@command(app, takes_yes=True)
def rm(session: Session, name: Name) -> None:
    """Forget a profile and its key here; the key itself stays valid: baseload key rm."""
    write_profiles(settings_folder(), load_profiles().without(name))
    session.screen.say(f"forgotten: {name}")
