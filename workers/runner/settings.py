"""The settings of the runner: the stack's home folder and its addresses."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

CHECKOUT = Path(__file__).resolve().parents[2]


class RunnerSettings(BaseSettings):
    """The runner's settings, from `BASELOAD_…`; by default all files are in `.baseload/`.

    temporal: the Temporal binary; None: the binary that `make setup` has found or made.
    cpu_core_hour_microcredits: the price of CPUs, so that a local job without GPUs has a bill too.
    node_networks: the networks in which nodes may be beside the usual ones; this machine is a node.
    """

    model_config = SettingsConfigDict(env_prefix="BASELOAD_", frozen=True)

    home: Path = CHECKOUT / ".baseload"
    api: str = Field("127.0.0.1:8700", pattern=r"^[^:\s]+:\d{1,5}$")
    temporal_port: int = Field(7233, ge=1, le=65535)
    ui_port: int = Field(8233, ge=1, le=65535)
    temporal: Path | None = None
    embedded_ssh: bool = False
    cpu_core_hour_microcredits: int = Field(1_000_000, ge=0)
    node_networks: str = "127.0.0.1/32"

    @property
    def api_host(self) -> str:
        return self.api.rpartition(":")[0]

    @property
    def api_port(self) -> int:
        return int(self.api.rpartition(":")[2])

    @property
    def api_url(self) -> str:
        """The address at which programs and browsers of this machine reach the API.

        One that listens at all addresses of the machine is reached at the loopback.
        """
        host = "127.0.0.1" if self.api_host == "0.0.0.0" else self.api_host  # noqa: S104 - no bind
        return f"http://{host}:{self.api_port}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"
