"""The startup script of a machine at Google, which prepares it to become a node."""

from workflows.contracts.machines import MachineOffer, MachineSpec

_DISKS_AND_KEY = """#!/bin/sh
# The files of jobs go to the local SSDs, if there are any. A restart keeps their content.
set -- $(ls -d /dev/disk/by-id/google-local-nvme-ssd-? 2>/dev/null)
if [ $# -gt 0 ]; then
  disk=$(blkid -L baseload)
  if [ -z "$disk" ]; then
    disk=$1
    [ $# -gt 1 ] && command -v mdadm >/dev/null && disk=/dev/md/baseload \\
      && mdadm --create "$disk" --level=0 --force --run --raid-devices=$# "$@"
    mkfs.ext4 -q -F -L baseload "$disk"
  fi
  mkdir -p /var/lib/baseload && mount -o discard,noatime "$disk" /var/lib/baseload
  rmdir /var/lib/baseload/lost+found 2>/dev/null
fi
# Only the region's key may log in as root, and no password may.
umask 077
mkdir -p /root/.ssh
printf '%s\\n' '{public_key}' > /root/.ssh/authorized_keys
mkdir -p /etc/ssh/sshd_config.d
printf 'PermitRootLogin prohibit-password\\n' > /etc/ssh/sshd_config.d/10-baseload.conf
systemctl reload ssh 2>/dev/null || systemctl reload sshd
"""
_APT = """umask 022
export DEBIAN_FRONTEND=noninteractive
install() {
  for pause in 0 10 30 60; do
    sleep $pause
    apt-get -o DPkg::Lock::Timeout=600 update -q \\
      && apt-get -o DPkg::Lock::Timeout=600 install -y -q "$@" && return
  done
  return 1
}
"""
_PODMAN = """# Podman comes last: where podman is present, all that containers need is present.
command -v podman >/dev/null || install podman
"""
_GPUS_OF_CONTAINERS = """# The names by which containers get GPUs, written once the driver works.
for attempt in $(seq 240); do
  nvidia-smi >/dev/null 2>&1 && break
  sleep 5
done
command -v nvidia-ctk >/dev/null || install nvidia-container-toolkit || exit 1
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml || exit 1
"""


def startup_script(offer: MachineOffer, spec: MachineSpec, public_key: str) -> str:
    """The script that root runs at every start; a repeated run changes nothing. Has no secret.

    Source: https://cloud.google.com/compute/docs/instances/startup-scripts/linux.
    """
    script = _DISKS_AND_KEY.replace("{public_key}", public_key)
    return script + containers_script(offer.gpu_count) if spec.containers else script


def containers_script(gpu_count: int) -> str:
    """The end of the script for a machine that needs podman; this part may take minutes.

    Sources: https://podman.io/docs/installation (Debian and Ubuntu have it among their packages),
    https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html.
    """
    return _APT + (_GPUS_OF_CONTAINERS if gpu_count else "") + _PODMAN
