"""One stack with a provider of each kind: own machines, clouds' doubles, a notebook, this host."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.activities.providers.colab.notebook import Notebook
from tests.chaos.cloud.markets import MARKETS
from tests.chaos.cloud.markets.market import Market
from tests.chaos.stack import PatientPlatform
from tests.doubles.rented.plain_boot import NODE_ROOT, NVIDIA_SMI, SHOWN_GPUS
from tests.e2e.platform import Site
from tests.e2e.stack import RunningStack
from tests.lab.hardware import put_gpus, shown_gpus
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until
from workers.runner.stack import Stack

OWN, NOTEBOOK = "physical", "colab"
KINDS = (OWN, NOTEBOOK, *MARKETS)
GPU = "Tesla T4"
GPU_MIB = 16_384
CREDITS = 10**12
SSHD = """#!/bin/sh
sed -i 's|^SetEnv|SetEnv "{variable}={root}"|' "$3"
exec {sshd} "$@"
"""
"""An SSH server whose sessions have the agent's folder of this notebook, not of this host."""


class MarketsStack(RunningStack):
    """A stack whose programs reach the doubles of all these markets."""

    def __init__(self, home: Path, host: str, markets: list[Market], **settings: str) -> None:
        self._markets = markets
        super().__init__(home, host, **settings)

    def _plan(self, environment: dict[str, str]) -> Stack:
        reached = {name: of for market in self._markets for name, of in market.environment.items()}
        plan = super()._plan({**environment, **reached})
        programs = plan.programs
        for market in self._markets:
            programs = tuple(market.adapted(program) for program in programs)
        return plan.model_copy(update={"programs": programs})


class EveryProvider:
    """The running stack, and what stands behind each of its providers."""

    def __init__(self, stack: RunningStack, markets: list[Market], notebook: Notebook) -> None:
        self.stack, self.markets, self.notebook = stack, markets, notebook
        self.platform = PatientPlatform(stack.url, stack.administrator_key)

    def enable(self, machine: Machine) -> None:
        """Enable a provider of each kind, as a user does."""
        account = self.platform.get("/v1/account")["id"]
        granted = {"amount_microcredits": CREDITS}
        self.platform.post(f"/v1/accounts/{account}/credits", granted)
        for market in self.markets:
            market.enable(self.platform)
        self._enable_notebook()
        self._enable_own(machine)

    def _enable_notebook(self) -> None:
        body = {"kind": NOTEBOOK, "accept_terms": True}
        provider_id = self.platform.post("/v1/providers", body)["id"]
        self.platform.until_status(f"/v1/providers/{provider_id}", "ready")
        found = self.platform.get("/v1/colab/bootstrap", provider_id=provider_id)
        self.notebook.run(found["cell"])
        wait_until(lambda: "expires at" in self.notebook.printed, "the notebook is announced")

    def _enable_own(self, machine: Machine) -> None:
        put_gpus(machine, GPU, 1, GPU_MIB)
        provider_id = self.platform.post("/v1/providers", {"kind": OWN})["id"]
        self.platform.until_status(f"/v1/providers/{provider_id}", "ready")
        body = {"provider_id": provider_id, "name": "home", "relaxed_requirements": ["all"]}
        region_id = self.platform.post("/v1/regions", body)["id"]
        self.platform.until_status(f"/v1/regions/{region_id}", "healthy")
        Site(self.platform, region_id).join(machine)


@contextmanager
def every_provider(lab: Lab) -> Iterator[EveryProvider]:
    """All providers enabled, for as long as the block lasts."""
    with ExitStack() as held:
        markets = []
        for make in MARKETS.values():
            markets.append(make())
            held.callback(markets[-1].close)
        notebook = held.enter_context(_notebook())
        settings = {name: of for market in markets for name, of in market.settings.items()}
        host = lab.network.host_address
        stack = MarketsStack(
            lab.folder / "everywhere", host, markets, **settings, job_end_grace_s="1"
        )
        held.callback(stack.close)
        stack.wait_until_ready()
        found = EveryProvider(stack, markets, notebook)
        held.enter_context(found.platform.http)
        found.enable(lab.add("everywhere"))
        yield found


@contextmanager
def _notebook() -> Iterator[Notebook]:
    """A notebook with a GPU, whose agent has a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-notebook-"))
    folder.chmod(0o755)  # The accounts of jobs pass through.
    shown = folder / "gpus.json"
    shown.write_text(json.dumps({"gpus": shown_gpus("notebook", GPU, 1, GPU_MIB)}))
    nvidia_smi = NVIDIA_SMI.read_text().replace(SHOWN_GPUS, str(shown))
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    server = SSHD.format(variable=NODE_ROOT, root=folder / "node", sshd=sshd)
    notebook = Notebook(folder / "notebook", ("nvidia-smi", nvidia_smi), ("sshd", server))
    try:
        yield notebook
    finally:
        notebook.close()
        shutil.rmtree(folder, ignore_errors=True)
