#!/bin/sh
# What a machine that has started from a boot drive does at each boot.
#
#   boot-drive.sh keys      before sshd: keep the host key, and so the minion id, and the join file on the data partition
#   boot-drive.sh join      with a network: run join.sh with what baseload.conf says
#
# The data partition is mounted at /mnt/drive. baseload.conf has lines NAME=VALUE: api, token, key, and if wanted
# address and port. It is read and never run. What a person has to do is written into /run/baseload/note, which
# the console shows.
set -eu

drive=/mnt/drive
here=/usr/local/lib/baseload
note=/run/baseload/note

say() { mkdir -p "${note%/*}" && printf '%s\n' "$1" >>"$note"; }

value() {  # NAME: its last value in baseload.conf, without the line ends of Windows and without quotes
    sed -n "s/^[[:space:]]*$1[[:space:]]*=[[:space:]]*//p" "$drive/baseload.conf" |
        tr -d '\r' | sed -e 's/[[:space:]]*$//' -e 's/^"\(.*\)"$/\1/' | tail -n 1
}

keys() {
    rm -f "$note"
    mountpoint -q /var/lib/baseload ||
        say "no disk has the label baseload-node: what jobs write is in memory, and gone at the next boot"
    if ! mountpoint -q "$drive"; then
        say "the drive has no data partition (label BASELOAD): the minion id changes at the next boot"
        [ -e /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/ssh_host_ed25519_key
        return
    fi
    kept=$drive/ssh_host_ed25519_key
    # A key whose file was cut off by a power cut is made anew; only a whole one gets the final name.
    if ! ssh-keygen -y -P '' -f "$kept" >/dev/null 2>&1; then
        rm -f "$kept" "$kept.part" "$kept.part.pub"
        ssh-keygen -q -t ed25519 -N '' -C '' -f "$kept.part"
        sync "$kept.part" && mv "$kept.part" "$kept" && rm -f "$kept.part.pub" && sync "$drive"
    fi
    install -m 600 "$kept" /etc/ssh/ssh_host_ed25519_key
    ssh-keygen -y -P '' -f "$kept" >/etc/ssh/ssh_host_ed25519_key.pub
    mkdir -p "$drive/joined"
    [ -e /etc/baseload ] || ln -s "$drive/joined" /etc/baseload
}

join() {
    if [ ! -r "$drive/baseload.conf" ]; then
        say "no baseload.conf on the drive's data partition: write api, token and key into it"
        return
    fi
    api=$(value api) token=$(value token) key=$(value key) address=$(value address) port=$(value port)
    mkdir -p "${note%/*}"
    grep -v '^join: ' "$note" >"$note.part" 2>/dev/null || :
    if said=$(sh "$here/deploy/node/join.sh" --console no --api "$api" --token "$token" --key "$key" \
        --address "$address" --port "${port:-22}" 2>&1); then
        mv "$note.part" "$note"
    else
        # The last line says what is missing; tokens are in none of the script's messages.
        printf '%s\n' "$said" | tail -n 1 | sed 's/^\(join: \)*/join: /' >>"$note.part"
        mv "$note.part" "$note"
        printf '%s\n' "$said" >&2
        exit 1
    fi
}

case ${1:-} in
    keys) keys ;;
    join) join ;;
    *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
