"""`baseload.run`: submits a task as a job from Python, at the providers that are preferred.

import baseload

baseload.configure(registry={"rented": {"kind": "runpod", "secret_ref": "env://RUNPOD_API_KEY"}})
task = {"entrypoint": "train.py", "outputs": ["model.pt"]}
job = baseload.run(task=task, provider="rented", gpus="A100:1", price_cap=2.5)
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from baseload.calls import Call
from baseload.errors import ConfigurationError

if TYPE_CHECKING:
    from baseload._sync.client import Client
    from baseload.models import Job

TASK_FIELDS = (
    "entrypoint", "args", "workdir", "requirements", "env", "outputs", "timeout", "name",
)  # fmt: skip
PROVIDER_FIELDS = ("kind", "name", "accept_terms", "credentials")
"""The fields of a provider of the registry that are no part of its credentials."""
MICROCREDITS = 1_000_000


@dataclass
class _Configuration:
    """The providers of this process, by name, and those that are used, the best first."""

    registry: dict[str, dict[str, Any]] = field(default_factory=dict)
    use: tuple[str, ...] = ()


_configuration = _Configuration()


def configure(
    registry: Mapping[str, Mapping[str, Any]] | None = None, use: Sequence[str] | None = None
) -> None:
    """Say which providers there are, and which of them `run` uses, the best first.

    registry: by name, each with its `kind`, and its `credentials`, or their fields beside it: an
    `api_key`, or the `secret_ref` to a key that the server has. One that the account does not have
    yet is enabled by the first `run` that uses it.
    use: names of the registry or of the account's providers, or kinds; empty: all that there are.
    What is left out stays as it was. Raises: ConfigurationError, for a provider without a kind, or
    with its credentials in two places.
    """
    if registry is not None:
        for name, each in registry.items():
            if not isinstance(each.get("kind"), str):
                raise ConfigurationError(f"registry: {name}: asked its kind, found none")
            if "credentials" in each and (beside := sorted(set(each) - set(PROVIDER_FIELDS))):
                raise ConfigurationError(
                    f"registry: {name}: asked credentials alone, found also {', '.join(beside)}"
                )
        _configuration.registry = {name: dict(each) for name, each in registry.items()}
    if use is not None:
        _configuration.use = tuple(use)


def run(
    task: Mapping[str, Any],
    *,
    provider: str | Sequence[str] | None = None,
    gpus: str = "cpu",
    price_cap: float | str | Decimal | None = None,
    client: Client | None = None,
) -> Job:
    """Submit a task as a job, its folder as the code; the job as the API has taken it.

    task: `entrypoint`, a Python file or a command; `args`, a list or a text; `workdir`, by default
    the folder here; `requirements`, a file of the folder; `env`, variables; `outputs`, files and
    folders that the command leaves in the folder and that are kept as the job's output, beside what
    it writes into `$BASELOAD_OUTPUT` (`Client.fetch_output`); `timeout`, in seconds; `name`.
    provider: a kind, a name or an id, or several, the best first; None: as configured.
    price_cap: credits for an hour of a machine, at most.
    Raises: ConfigurationError, for a task that cannot be read; ApiError.
    """
    from baseload._sync.client import Client

    document = job_of(task, gpus, price_cap)
    names = (provider,) if isinstance(provider, str) else tuple(provider or _configuration.use)
    folder = Path(task.get("workdir") or Path.cwd())
    if client is not None:
        return _submitted(client, document, names, folder)
    with Client() as own:
        return _submitted(own, document, names, folder)


def job_of(
    task: Mapping[str, Any], gpus: str, price_cap: float | str | Decimal | None
) -> dict[str, Any]:
    """The document of a job without its code and its providers.

    Raises: ConfigurationError, naming the field of the task.
    """
    if unknown := sorted(set(task) - set(TASK_FIELDS)):
        raise ConfigurationError(
            f"task: asked {', '.join(TASK_FIELDS)}; found also {', '.join(unknown)}"
        )
    entrypoint = task.get("entrypoint")
    if not isinstance(entrypoint, str) or not entrypoint.strip():
        raise ConfigurationError("task: asked an entrypoint, such as train.py; found none")
    folder = Path(task.get("workdir") or Path.cwd())
    resources: dict[str, Any] = {"gpus": gpus}
    if gpus.strip().lower() == "cpu":
        resources["cpu_count"] = 1
    environment: dict[str, Any] = {"variables": dict(task.get("env") or {})}
    if task.get("requirements"):
        environment["requirements"] = task["requirements"]
    safety: dict[str, Any] = {}
    if price_cap is not None:
        safety["price_cap_microcredits_per_hour"] = _microcredits(price_cap)
    if task.get("timeout") is not None:
        safety["max_duration_s"] = task["timeout"]
    return {
        "name": task.get("name") or folder.resolve().name or "job",
        "type": "training",
        "resources": resources,
        "environment": environment,
        "safety": safety,
        "workers": [
            {
                "command": _keeping(
                    _outputs(task.get("outputs") or ()),
                    _command(entrypoint, task.get("args") or ()),
                )
            }
        ],
    }


def _submitted(
    client: Client, document: dict[str, Any], names: tuple[str, ...], folder: Path
) -> Job:
    from baseload.models import Job

    providers = _enabled(client, names)
    placement = {"placement": {"providers": providers}} if providers else {}
    code = {"code": {"upload_id": client.upload_folder(folder).id}}
    call = Call("POST", "/v1/jobs", body=document | placement | code)
    return Job.model_validate(client.transport.json(call))


def _enabled(client: Client, names: tuple[str, ...]) -> list[str]:
    """The ids of the providers of these names, in order; what is no name is an id or a kind.

    Those of the registry that the account does not have are enabled.
    Raises: ConfigurationError, for a name of several providers.
    """
    if not names:
        return []
    registry, kinds = _configuration.registry, set()
    ids: dict[str, list[str]] = {}
    for each in client.every(client.list_providers):
        kinds.add(each.kind)
        if each.status != "removing":
            ids.setdefault(each.name, []).append(each.id)
    for name in names:
        if name in registry and name not in ids:
            body = _creation(name, registry[name])
            made = client.transport.json(Call("POST", "/v1/providers", body=body))
            ids[name] = [made["id"]]
        if len(ids.get(name, ())) > 1 and name not in kinds:
            found = ", ".join(ids[name])
            raise ConfigurationError(f"provider {name}: asked one of this name, found {found}")
    return [
        # The name of a kind is that of all its providers, but where the registry has it.
        ids[name][0] if len(ids.get(name, ())) == 1 and (name in registry or name not in kinds)
        else name
        for name in names
    ]  # fmt: skip


def _creation(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The body that enables a provider of the registry."""
    body = {"name": name} | {field: given[field] for field in PROVIDER_FIELDS if field in given}
    beside = {field: value for field, value in given.items() if field not in PROVIDER_FIELDS}
    return body | ({"credentials": beside} if beside else {})


def _outputs(given: str | Sequence[str]) -> list[str]:
    """The paths of a task's outputs. Raises: ConfigurationError, for one out of its folder."""
    outputs = [given] if isinstance(given, str) else list(given)
    for each in outputs:
        path = PurePosixPath(each) if isinstance(each, str) else PurePosixPath("/")
        if not path.parts or path.is_absolute() or ".." in path.parts or not each.isprintable():
            raise ConfigurationError(f"outputs: asked paths in the task's folder, found {each!r}")
    return outputs


def _keeping(outputs: Sequence[str], command: str) -> str:
    """The command, and then the copying of its outputs; one that is missing fails the job."""
    if not outputs:
        return command
    copying = f'cp -R --parents -- {shlex.join(outputs)} "$BASELOAD_OUTPUT"'
    return f'(\n{command}\n)\ncode=$?\n{copying} || [ "$code" != 0 ] || code=1\nexit "$code"'


def _command(entrypoint: str, args: str | Sequence[str]) -> str:
    first = entrypoint
    if entrypoint.endswith(".py") and shlex.split(entrypoint) == [entrypoint]:
        first = f"python {entrypoint}"
    rest = args if isinstance(args, str) else shlex.join(str(each) for each in args)
    return f"{first} {rest}".strip()


def _microcredits(amount: float | str | Decimal) -> int:
    try:
        exact = Decimal(str(amount)) * MICROCREDITS
        whole = int(exact)
    except (InvalidOperation, ValueError, OverflowError) as cause:
        raise ConfigurationError(f"price_cap: asked credits, found {amount!r}") from cause
    if whole != exact or whole < 0:
        raise ConfigurationError(f"price_cap: asked at most six decimals, found {amount!r}")
    return whole
