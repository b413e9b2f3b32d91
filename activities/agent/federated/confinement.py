"""The confinement of a federated run: all that keeps its model, and what it is given, to itself.

Before the run starts, its supervisor has the key, and the network is made. The run's first process
then enters the network, has a root in which it writes to memory alone, opens the model in it, and
closes all that shows memory. A run that cannot be confined does not start.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
from typing import Any, List

from ..errors import RefusedError
from ..folders import Run
from ..host import cgroups, run_root
from . import egress, hardening, key_handover, links, model, opening, root
from .network import Network

NOT_ROOT = "the node's account is not root, and only root can confine a federated run"
FAILURE = "unconfined.json"
"""The file of a run that says why it was not confined, in words that are not of its log."""


class Confinement:
    """The confinement of one run, made by its supervisor.

    Raises: RefusedError `not-confined`, `bad-egress`, `no-network`, `no-model-key`, `swap`.
    """

    def __init__(self, run: Run, spec: dict[str, Any]) -> None:
        self._run = run
        self._spec = spec
        self.is_contained = spec.get("runtime") == "podman"
        why = why_not(spec)
        if why is not None:
            raise RefusedError("not-confined", "run %s: %s" % (run.run_id, why))
        self._places = egress.places(list(spec["federated"].get("egress") or []))
        if spec.get("runtime") == "process":
            cgroups.make(run, spec)
        hardening.keep_off_swap(run, spec)
        self._key = bytearray()
        if model.of_run(spec) is not None:
            key_handover.lock_memory()
            self._key = key_handover.take_key(run)
        self._network = Network(self._places)

    def enter(self) -> None:
        """Confine this process, which is to become the run; needs root. Raises: OSError."""
        folder = os.open(self._run.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._enter()
        except (OSError, ValueError, RefusedError) as error:
            code = error.code if isinstance(error, RefusedError) else "not-confined"
            _note(folder, code, str(error))
            raise
        finally:
            os.close(folder)

    def _enter(self) -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
        if self.is_contained:
            top = root.cover(self._run, self._spec)
        else:
            run_root.unshare(links.CLONE_NEWIPC)
            self._network.enter()
            top = root.make(self._run, self._spec, egress.hosts_file(self._places))
        if self._key:
            folder = model.open_into(self._run, self._spec, self._key, top)
            root.show_model(folder, folder[len(top) :] if self.is_contained else None)
            key_handover.forget(self._key)
        if not self.is_contained:
            root.enter(top)

    def harden(self) -> None:
        """The last that this process does as ours; a container is hardened by podman."""
        if not self.is_contained:
            hardening.harden()

    def options(self) -> List[str]:
        """podman's options for a container that is confined, in the place of its network."""
        hosts, calls = self._run.at("hosts"), self._run.at("calls.json")
        with open(hosts, "w") as file:
            file.write(egress.hosts_file(self._places))
        os.chmod(hosts, 0o644)
        with open(calls, "w") as file:
            json.dump(hardening.profile(), file)
        options = ["--network=ns:" + self._network.path, "--ipc=private", "--read-only"]
        options += ["--read-only-tmpfs=true", "--no-hosts"]
        options += ["--security-opt=seccomp=" + calls, "--volume", hosts + ":/etc/hosts:ro"]
        if hardening.has_swap():
            options.append("--memory-swap=%db" % self._spec["memory_bytes"])
        return options

    def started(self) -> None:
        """Forget the key, which the run's first process has."""
        key_handover.forget(self._key)

    def end(self) -> None:
        """Let the network end with the run's command."""
        self._network.end()

    def forget(self) -> None:
        """Remove the sealed model, which a run has that did not come to open it."""
        for name in (model.SEALED, model.PART, key_handover.SOCKET):
            with contextlib.suppress(OSError):
                os.unlink(self._run.at(name))


def check(spec: dict[str, Any]) -> None:
    """Check that a run can be confined here, before anything of it is made.

    Raises: RefusedError `not-confined`, `bad-egress`, `no-cipher`.
    """
    why = why_not(spec)
    if why is not None:
        raise RefusedError("not-confined", "a federated run cannot be confined here: %s" % why)
    egress.places(list(spec["federated"].get("egress") or []))
    if model.of_run(spec) is not None:
        opening.check_cipher()


def why_not(spec: dict[str, Any]) -> str | None:
    """Why a run cannot be confined on this machine; None: it can."""
    if os.geteuid() != 0:
        return NOT_ROOT
    if not spec.get("user"):
        return "it has no account of its own"
    if spec.get("is_idle_workload") or spec.get("has_media"):
        return "an idle workload, or a run with cameras or sound, is none of a federated job"
    return hardening.why_not()


def _note(folder: int, code: str, message: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(FAILURE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=folder)
        with open(descriptor, "w") as file:
            json.dump({"code": code, "message": message[:500]}, file)


def failure(run: Run) -> tuple[str, str] | None:
    """Why a run was not confined, as code and message; None: it was."""
    found = run.read(FAILURE)
    return None if found is None else (str(found["code"]), str(found["message"]))
