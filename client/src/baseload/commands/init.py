"""`baseload init`: writes a job file for the folder, by what is in it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.session import MistakeError, Session, command

app = new_app()
JOB_FILE = "job.yaml"
NAME_CHARACTERS = 100
SCRIPTS = ("train.py", "main.py")
SERVERS = ("app.py", "server.py")
ENVIRONMENTS = ("environment.yml", "environment.yaml")
GPU_WORDS = ("torch", "tensorflow", "jax", "cupy", "vllm", "transformers")
JUPYTER = (
    "jupyter lab --no-browser --allow-root --ip=127.0.0.1 --port=$BASELOAD_PORT"
    " --ServerApp.port_retries=0 --ServerApp.allow_remote_access=True --IdentityProvider.token="
)
"""Without a token of its own: the platform asks who comes, and nobody else reaches the port."""


@dataclass(frozen=True)
class Found:
    """What a folder says of its job; port: where its command listens, None for a training job."""

    type: str
    command: str
    why: str
    port: int | None = None
    requirements: str | None = None
    packages: tuple[str, ...] = ()
    uses_gpus: bool = False


@command(app)
def init(
    session: Session,
    folder: Annotated[Path, typer.Argument(help="the folder of the code")] = Path(),
) -> None:
    """Write a job.yaml for a folder, by its requirements, scripts and notebooks.

    A job.yaml that is there is left as it is; then the exit code is 2.
    """
    if not folder.is_dir():
        raise MistakeError(f"{folder}: there is no such folder")
    found, path = look(folder), folder / JOB_FILE
    try:
        with path.open("x") as file:
            file.write(text_of(folder, found))
    except FileExistsError as cause:
        raise MistakeError(f"{path} is there already and stays as it is") from cause
    except OSError as cause:
        raise MistakeError(f"{path}: {cause.strerror or cause}") from cause
    if session.screen.as_json:
        session.screen.json({"job_file": str(path), "type": found.type, "command": found.command})
        return
    session.screen.result(f"{path}: {found.type}, {found.command}")
    session.screen.say(f"next: baseload submit {path} --follow")


def look(folder: Path) -> Found:
    """What the files of a folder say of its job."""
    requirements = _requirements(folder)
    uses_gpus = _uses_gpus(folder)
    for name in SCRIPTS:
        if (folder / name).is_file():
            return Found("training", f"python {name}", name, None, requirements, (), uses_gpus)
    for name in SERVERS:
        if (folder / name).is_file():
            return Found("endpoint", f"python {name}", name, 8080, requirements, (), uses_gpus)
    notebooks = sorted(folder.glob("*.ipynb"))
    if notebooks:
        why = notebooks[0].name
        if requirements and "jupyter" in _text(folder / requirements):
            return Found("notebook", JUPYTER, why, 8888, requirements, (), uses_gpus)
        return Found("notebook", JUPYTER, why, 8888, None, ("jupyterlab",), uses_gpus)
    scripts = sorted(path.name for path in folder.glob("*.py"))
    if len(scripts) == 1:
        command_ = f"python {scripts[0]}"
        return Found("training", command_, scripts[0], None, requirements, (), uses_gpus)
    command_ = "echo hello from $(hostname)"
    return Found("training", command_, "", None, requirements, (), uses_gpus)


def text_of(folder: Path, found: Found) -> str:
    """The job file, with a comment where a person decides."""
    printed = "".join(each for each in folder.resolve().name if each.isprintable()).strip()
    name = json.dumps(printed[:NAME_CHARACTERS].strip() or "job", ensure_ascii=False)
    hint = "A100:1" if found.uses_gpus else "A100:1, L4, H100:8"
    lines = [
        f"# {'By ' + found.why if found.why else 'An example'}; start it: baseload submit job.yaml",
        f"name: {name}",
        f"type: {found.type}          # training, inference, notebook or endpoint",
        "resources:",
        f"  gpus: cpu             # or {hint}: see baseload offers --gpus A100:1",
        "  cpu_count: 1",
        "  memory_gib: 2",
        *_environment(found),
        "code:",
        "  path: .               # without what .gitignore and .baseloadignore name",
        "workers:",
        f"  - command: {json.dumps(found.command)}{_advice(found)}",
    ]
    if found.port is not None:
        lines.append(f"port: {found.port}              # the command listens on $BASELOAD_PORT")
    return "\n".join(lines) + "\n"


def _environment(found: Found) -> list[str]:
    if found.requirements:
        return ["environment:", f"  requirements: {json.dumps(found.requirements)}"]
    if found.packages:
        return ["environment:", f"  python_packages: [{', '.join(found.packages)}]"]
    return ["# environment:", "#   python_packages: [numpy]", '#   variables: {EPOCHS: "20"}']


def _advice(found: Found) -> str:
    if found.port is not None:
        return ""
    if not found.why:
        return "   # change this"
    return "   # what it writes into $BASELOAD_OUTPUT is kept"


def _requirements(folder: Path) -> str | None:
    """The file that says what is installed."""
    if (folder / "requirements.txt").is_file():
        return "requirements.txt"
    if _is_project(folder / "pyproject.toml"):
        return "pyproject.toml"
    return next((name for name in ENVIRONMENTS if (folder / name).is_file()), None)


def _is_project(path: Path) -> bool:
    """Whether a pyproject.toml lists dependencies; those for tools alone do not."""
    try:
        project = tomllib.loads(path.read_text()).get("project")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return False
    return isinstance(project, dict) and bool(project.get("dependencies"))


def _uses_gpus(folder: Path) -> bool:
    """Whether a file names a package that is mostly used with GPUs."""
    names = ("requirements.txt", "pyproject.toml", *ENVIRONMENTS, *SCRIPTS, *SERVERS)
    return any(word in _text(folder / name) for name in names for word in GPU_WORDS)


def _text(path: Path) -> str:
    """The text of a file; empty, when it is none."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
