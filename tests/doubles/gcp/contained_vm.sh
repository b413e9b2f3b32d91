#!/bin/bash
# contained_vm.sh STAGE   A VM in namespaces of its own (PIDs, mounts, host name, IPC) on the host's network; its root is
# an overlay over /, so that nothing it does reaches the host. contained_boot.py sets VM_FOLDER and VM_NAME.
#   power  stands for the host it runs on: boots, and boots again after a restart (reboot(2) ends PID 1 with SIGHUP)
#   disk   mounts the overlay and everything under it, then becomes PID 1's program
#   init   keeps sshd up, runs the startup script and, as every init does, collects orphans
set -e
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

power() {
  while :; do
    local status=0
    setpriv --pdeathsig KILL unshare --mount --uts --ipc --pid --fork --kill-child --propagation private \
      bash "$0" disk || status=$?
    [ $status = 129 ] || exit $status
  done
}

# The jobs' accounts have other numbers than the host's: an agent tidies up after its own by their numbers.
settle() {
  sed -i '/^baseload-job/d; /^baseload-build/d' etc/passwd etc/shadow etc/group etc/gshadow
  printf 'SYS_UID_MIN 200\nSYS_UID_MAX 299\nSYS_GID_MIN 200\nSYS_GID_MAX 299\n' >> etc/login.defs
  local user
  while read -r user; do
    chroot . useradd --create-home --shell /bin/bash --password '*' "$user" 2> /dev/null
    chroot . chown -R "$user:" "/home/$user"
  done < "$VM_FOLDER/users"
  touch etc/vm-installed
}

disk() {
  hostname "$VM_NAME"
  cd "$VM_FOLDER"
  mount -t overlay overlay -o "lowerdir=/,upperdir=$VM_FOLDER/upper,workdir=$VM_FOLDER/work" root
  cd root
  mount -t proc proc proc
  mount -t sysfs sysfs sys
  mount -t tmpfs -o mode=755 tmpfs run
  mkdir -p run/sshd
  mount -t tmpfs -o mode=1777 tmpfs tmp
  mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  [ -e etc/vm-installed ] || settle
  mkdir -p .old
  pivot_root . .old
  cd /
  umount -l /.old
  rmdir /.old
  exec env -i PATH="$PATH" bash /usr/local/sbin/vm-init init
}

startup() {
  until [ -s /run/sshd.pid ]; do sleep 0.02; done
  local status=0
  /usr/local/sbin/startup-script < /dev/null >> /var/log/startup-script.log 2>&1 || status=$?
  echo "exit status $status" >> /var/log/startup-script.log
}

init() {
  set +e
  [ ! -x /usr/local/sbin/startup-script ] || startup &
  while :; do
    /usr/sbin/sshd -D -E /var/log/sshd.log &
    wait $!
    sleep 0.1
  done
}

"$1"
