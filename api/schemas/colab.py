"""The schemas of the cell that a Colab notebook runs, and of its announcement."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

from api.schemas.base import RequestBody, ResponseBody, without_control_characters
from api.schemas.nodes import Address, Port, UserName


class ColabBootstrap(ResponseBody):
    """The cell by which a notebook announces itself once."""

    cell: str
    """Python text to run in the notebook, with your own ngrok token inserted."""
    public_key: str
    """The line of an authorized_keys file that the cell lets in."""
    token: str
    """The one-time token, which is in the cell too; a later cell has another, and this one is void
    then."""
    expires_at: datetime
    """Until when the token works."""


class ColabAnnouncementCreation(RequestBody):
    """What a notebook says of itself."""

    token: Annotated[str, Field(max_length=200)]
    host: Address
    """The public host of its tunnel, such as `0.tcp.ngrok.io`."""
    port: Port
    user: UserName = "root"
    host_public_key: Annotated[str, Field(max_length=4096)]
    """The SSH host key as in an OpenSSH public key file: type and base64."""
    gpu_name: (
        Annotated[str, Field(max_length=100), AfterValidator(without_control_characters)] | None
    ) = None
    """As the driver prints it, such as `Tesla T4`; null: there is none."""
    gpu_count: Annotated[int, Field(ge=0, le=16)] = 0
    cpu_count: Annotated[int, Field(ge=1, le=1024)]
    memory_bytes: Annotated[int, Field(ge=1, le=2**44)]


class ColabAnnouncementReceipt(ResponseBody):
    provider_id: str
    host: str
    port: int
    host_key_fingerprint: str
    gpu_type: str | None
    gpu_count: int
    expires_at: datetime
    """Until when jobs are sent there; run the cell again after that."""
