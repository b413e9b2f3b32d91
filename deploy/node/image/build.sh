#!/bin/sh
# Builds the live image of a boot drive with Debian's live-build, and adds the data partition: `make node-image`.
#
#   build.sh [FOLDER]      FOLDER gets the build and baseload-node-amd64.img (default: .baseload/node-image)
#
# As root, on Debian 12 or newer, with: live-build debootstrap xorriso squashfs-tools dosfstools fdisk. 8 GiB of disk.
# NVIDIA=no leaves the driver of NVIDIA's cards out.
set -eu

image=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$image/../../../.baseload/node-image}
fail() { echo "node-image: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "root is needed: live-build makes a system in a folder (sudo make node-image)"
missing=
for tool in lb debootstrap mkfs.vfat sfdisk; do command -v "$tool" >/dev/null || missing="$missing $tool"; done
[ -z "$missing" ] || fail "missing:$missing (apt-get install live-build debootstrap dosfstools fdisk)"

mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
cd "$folder"
rm -rf auto config
cp -R "$image/auto" "$image/config" .
programs=config/includes.chroot_after_packages/usr/local/lib/baseload
# join.sh finds the program that maps its port (UPnP) where it lies in the checkout.
mkdir -p "$programs/deploy/node" "$programs/activities/agent/upnp"
cp "$image/../console.py" "$programs/"
cp "$image/../join.sh" "$programs/deploy/node/"
cp "$image"/../../../activities/agent/upnp/*.py "$programs/activities/agent/upnp/"
lb clean >/dev/null
lb config
lb build
[ -f baseload-node-amd64.hybrid.iso ] || fail "live-build has made no image in $folder: its last words are above"

# The data partition lies behind the system, as a third partition that any computer can write to.
size_mib=64
cp baseload-node-amd64.hybrid.iso baseload-node-amd64.img.part
truncate --size=%1M baseload-node-amd64.img.part
start_mib=$(($(stat --format=%s baseload-node-amd64.img.part) / 1048576))
truncate --size=+${size_mib}M baseload-node-amd64.img.part
echo "start=$((start_mib * 2048)), size=$((size_mib * 2048)), type=c" |
    sfdisk --quiet --no-reread --append baseload-node-amd64.img.part
data=$(mktemp -d)
trap 'rm -rf "$data"' EXIT
truncate --size=${size_mib}M "$data/fat"
mkfs.vfat -n BASELOAD "$data/fat" >/dev/null
dd if="$data/fat" of=baseload-node-amd64.img.part bs=1M seek="$start_mib" conv=notrunc status=none
mv baseload-node-amd64.img.part baseload-node-amd64.img
echo "node-image: $folder/baseload-node-amd64.img"
