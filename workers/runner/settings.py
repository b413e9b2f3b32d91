"""Where the runner's stack lives and which addresses it takes."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

CHECKOUT = Path(__file__).resolve().parents[2]


class RunnerSettings(BaseSettings):
    """Read from `BASELOAD_…`; a checkout's stack keeps everything under its own `.baseload/`.

    temporal: the Temporal binary; unset means the one that `make setup` has found or made.
    cpu_core_hour_microcredits: the local stack charges for CPUs: a job without GPUs has a bill too.
    """

    model_config = SettingsConfigDict(env_prefix="BASELOAD_", frozen=True)

    home: Path = CHECKOUT / ".baseload"
    api: str = Field("127.0.0.1:8700", pattern=r"^[^:\s]+:\d{1,5}$")
    temporal_port: int = Field(7233, ge=1, le=65535)
    ui_port: int = Field(8233, ge=1, le=65535)
    temporal: Path | None = None
    embedded_ssh: bool = False
    cpu_core_hour_microcredits: int = Field(1_000_000, ge=0)

    @property
    def api_host(self) -> str:
        return self.api.rpartition(":")[0]

    @property
    def api_port(self) -> int:
        return int(self.api.rpartition(":")[2])

    @property
    def api_url(self) -> str:
        return f"http://{self.api}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"
