"""Rented machines that are containers of the job's image: their names, and how they start.

The image's own command does not run. The machine starts with our script, which writes the host key
before any SSH server listens, and becomes the SSH server.
"""

import base64
import re
from collections.abc import Mapping

from activities.providers.base import RequestRefused
from activities.secrets.login_keys import login_public_key
from activities.secrets.machine_keys import host_key_fingerprint, host_private_key
from activities.secrets.region_keys import region_public_key
from workflows.contracts.machines import MachineOffer, MachineSpec

MACHINE_NAME = re.compile("baseload-[-a-z0-9]{0,53}[a-z0-9]")
OFFER = "BASELOAD_OFFER"
HOST_KEY = "BASELOAD_HOST_KEY"
START = "BASELOAD_START"
PUBLIC_KEY = "PUBLIC_KEY"
COMMAND = f"""bash -c 'eval "${START}"' sshd"""
"""The command of the container, in the words of a shell, under the name of what it becomes."""
_START = f"""set -eu
umask 077
sshd="$(command -v sshd || echo /usr/sbin/sshd)"
[ -x "$sshd" ] || {{ echo "baseload: the image has no sshd" >&2; exit 78; }}
mkdir -p /etc/ssh /run/sshd /root/.ssh
chmod 755 /run/sshd
rm -f /etc/ssh/ssh_host_*
printf %s "${HOST_KEY}" | base64 -d > /etc/ssh/ssh_host_ed25519_key
printf '%s\\n' "${PUBLIC_KEY}" > /root/.ssh/authorized_keys
unset {HOST_KEY} {START}
exec "$sshd" -D -e -p 22 -h /etc/ssh/ssh_host_ed25519_key -o PasswordAuthentication=no \\
  -o PermitRootLogin=prohibit-password -o AuthorizedKeysFile=/root/.ssh/authorized_keys \\
  -o SetEnv="PATH=$PATH LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}}"
"""
"""The image's variables of these names go on to the platform's commands, which find its Python."""


def marketplace_name(machine_name: str, provider_id: str) -> str:
    """The name of a machine at its marketplace, which says whose it is."""
    return f"{machine_name}.{provider_id}"


def own_machine_name(name: str, provider_id: str) -> str | None:
    """The machine's name out of its name at the marketplace; None: it is not of this provider.

    Only a name that the platform makes is one. Another installation on the same account has other
    provider ids, and neither an id nor a machine's name has a dot in it.
    """
    own = name.removesuffix(f".{provider_id}")
    return own if own != name and MACHINE_NAME.fullmatch(own) else None


def variables_of(machine_name: str, offer: MachineOffer, spec: MachineSpec) -> Mapping[str, str]:
    """The variables of a new machine; its host key and the key that it lets in are its alone.

    A lease of an earlier release has machines that let in their region's key.

    Raises: RequestRefused, when the spec names no region, whose key the machine would let in.
    """
    region_id = spec.tags.get("region")
    if region_id is None:
        raise RequestRefused(f"{machine_name}: its tags name no region, whose key it would let in")
    public_key = region_public_key(region_id)
    if spec.has_own_key:
        public_key = login_public_key(region_id, host_key_fingerprint(machine_name))
    return {
        **spec.env,
        PUBLIC_KEY: public_key,
        OFFER: offer.label,
        HOST_KEY: base64.b64encode(host_private_key(machine_name)).decode(),
        START: _START,
    }
