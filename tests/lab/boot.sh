#!/bin/bash
# boot.sh STAGE   A whole machine in namespaces of its own: network, PIDs, mounts, host name, IPC, cgroups; its
# root is an overlay over /, so that nothing it does reaches the host. machines.py sets LAB_FOLDER, LAB_NAME, LAB_KIND.
#   power     stands for the power supply: boots, and boots again after a restart (reboot(2) ends PID 1 with SIGHUP)
#   firmware  names the machine and puts it into its own cgroups, listed in $LAB_FOLDER/cgroups
#   disk      mounts the overlay and everything under it, then becomes PID 1's program
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

power() {
  ip link set lo up
  while :; do
    local status=0
    setpriv --pdeathsig KILL unshare --mount --uts --ipc --pid --fork --kill-child --propagation private \
      bash "$0" firmware || status=$?
    [ $status = 129 ] || exit $status
  done
}

firmware() {
  hostname "$LAB_NAME"
  while read -r folder _; do echo 0 > "$folder/cgroup.procs"; done < "$LAB_FOLDER/cgroups"
  exec unshare --cgroup bash "$0" disk
}

mount_cgroups() {
  local folder kind options name
  if ! grep -q ' cgroup ' "$LAB_FOLDER/cgroups"; then
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    return
  fi
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  while read -r folder kind options name; do
    mkdir "sys/fs/cgroup/$name"
    mount -t "$kind" -o "$options" "$kind" "sys/fs/cgroup/$name"
  done < "$LAB_FOLDER/cgroups"
}

mount_devices() {
  mount -t tmpfs -o mode=755 tmpfs dev
  mkdir dev/pts dev/shm dev/net dev/mqueue
  local device
  for device in 'null 1 3' 'zero 1 5' 'full 1 7' 'random 1 8' 'urandom 1 9' 'tty 5 0' 'fuse 10 229' 'kmsg 1 11' \
    'net/tun 10 200'; do
    set -- $device
    mknod -m 666 "dev/$1" c "$2" "$3"
  done
  ln -s /proc/self/fd dev/fd
  ln -s /proc/self/fd/0 dev/stdin
  ln -s /proc/self/fd/1 dev/stdout
  ln -s /proc/self/fd/2 dev/stderr
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
  ln -s pts/ptmx dev/ptmx
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
}

# The rest of what an installer does, on the mounted disk: the owner, who can log in with a password.
# Its jobs' accounts have other numbers than the host's: an agent on the host tidies up all of /var/tmp after its own.
install() {
  sed -i '/^baseload-job/d' etc/passwd etc/shadow etc/group etc/gshadow
  printf 'SYS_UID_MIN 300\nSYS_UID_MAX 499\n' >> etc/login.defs
  chroot . useradd --create-home --shell /bin/bash owner
  echo 'owner:owner-password' | chroot . chpasswd
  touch etc/lab-installed
}

disk() {
  cd "$LAB_FOLDER"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$LAB_FOLDER/upper,workdir=$LAB_FOLDER/work" root
  cd root
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount_cgroups
  mkdir -p var/lib/containers
  mount --bind "$LAB_FOLDER/containers" var/lib/containers # an overlay cannot lie on an overlay
  mount -t tmpfs -o mode=755 tmpfs run
  mkdir -p run/sshd
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mount_devices
  [ ! -e etc/lab-parts ] || . etc/lab-parts # the parts that the machine is built with
  [ -e etc/lab-installed ] || install
  mkdir -p .old
  pivot_root . .old
  cd /
  umount -l /.old
  rmdir /.old
  if [ "$LAB_KIND" = systemd ]; then
    exec env -i container=lxc PATH="$PATH" /lib/systemd/systemd --system --log-target=journal --show-status=0
  fi
  exec env -i PATH="$PATH" /usr/local/sbin/lab-init
}

"$1"
