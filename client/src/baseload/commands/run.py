"""`baseload run`: submits a command as a job without a job file, the folder here as its code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from baseload.commands.app import new_app
from baseload.commands.credit import microcredits
from baseload.commands.session import MistakeError, Session, command
from baseload.commands.submit import (
    Gpus,
    Labels,
    PriceCap,
    Providers,
    VariableFiles,
    Variables,
    submit_file,
)
from baseload.job_files import JobFile
from baseload.job_overrides import OverrideError, Overrides

app = new_app()
NAME_CHARACTERS = 100


class ScriptOrCommand(TyperCommand):
    """A command whose options may also stand behind its first word, if that is a script here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        found, _, _ = self.make_parser(ctx).parse_args(list(args))
        given = found.get("command_") or ()
        words = (given,) if isinstance(given, str) else tuple(given)
        ctx.allow_interspersed_args = bool(words) and is_script(words[0])
        return super().parse_args(ctx, args)


def is_script(word: str) -> bool:
    """Whether a word names a Python file of this folder, which no shell runs as a command."""
    path = Path(word)
    return path.suffix == ".py" and path.is_file() and not os.access(path, os.X_OK)


@command(app, cls=ScriptOrCommand, allow_interspersed_args=False)
def run(
    session: Session,
    command_: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="what each worker runs")
    ],
    gpus: Gpus = None,
    cpus: Annotated[int | None, typer.Option(help="processors; without GPUs 1")] = None,
    memory_gib: Annotated[float | None, typer.Option(help="memory")] = None,
    image: Annotated[str | None, typer.Option(help="container image to run in")] = None,
    name: Annotated[str | None, typer.Option(help="default: the folder's name")] = None,
    env: Variables = None,
    env_file: VariableFiles = None,
    label: Labels = None,
    provider: Providers = None,
    price_cap: PriceCap = None,
    requirements: Annotated[
        str | None, typer.Option(metavar="FILE", help="of this folder, such as requirements.txt")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="any field of a job; repeatable"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--detach", "-f/-d", help="print its log; end as it ends")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be sent, where to and for how much")
    ] = False,
) -> None:
    """Run a command as a job: baseload run --gpus A100:1 -- python train.py

    Or a script with the options behind it: baseload run train.py --gpus A100:1 -- --epochs 3

    The folder here is its code. The exit code is 0 only for a job that has finished.
    """
    overrides = Overrides(
        name=name,
        gpus=gpus or "cpu",
        cpus=cpus if cpus is not None or not _is_cpu(gpus) else 1,
        memory_gib=memory_gib,
        image=image,
        requirements=requirements,
        variables=env or (),
        variable_files=env_file or (),
        labels=label or (),
        providers=provider or (),
        price_cap_microcredits=None if price_cap is None else microcredits(price_cap),
        fields=set_ or (),
        command=["python", *command_] if is_script(command_[0]) else command_,
    )
    if requirements is not None and not Path(requirements).is_file():
        raise MistakeError(f"--requirements {requirements}: there is no such file in this folder")
    try:
        file = overrides.applied(_job_of_folder(Path.cwd()))
    except OverrideError as cause:
        raise MistakeError(str(cause)) from cause
    submit_file(session, file, follow=follow, dry_run=dry_run)


def _is_cpu(gpus: str | None) -> bool:
    return gpus is None or gpus.strip().lower() == "cpu"


def _job_of_folder(folder: Path) -> JobFile:
    """A training job with the folder as its code, without a command.

    Raises: MistakeError, for a folder that nobody means to send.
    """
    if folder in (Path.home(), Path(folder.anchor)):
        raise MistakeError(f"{folder} as a whole would be sent: run this in the folder of the code")
    printed = "".join(each for each in folder.name if each.isprintable()).strip()
    job = {"name": printed[:NAME_CHARACTERS].strip() or "job", "type": "training"}
    return JobFile(None, job, Path(), {})
