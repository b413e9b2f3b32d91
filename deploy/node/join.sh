#!/bin/sh
# Run on a machine that is to become a node or a device: shows its minion id, writes down which region it joins, lets
# the region's key in, and announces it. Doing it twice changes nothing. When it is added, the platform closes all other
# logins to it until it is removed, unless its region leaves them open (`baseload region create --shared`).
#
#   join.sh --api http://HOST:8700 --token join_reg-… --key "restrict ssh-ed25519 AAAA… baseload"
#       [--address A] [--port N] [--user NAME] [--host-key FILE.pub] [--authorized-keys FILE] [--join-file FILE]
#       [--no-upnp]
#
# Behind a router it has the router forward a TCP port to the SSH server, by UPnP, unless --no-upnp or --address is
# given or the platform is in the same private network. The port is renewed every 10 minutes, and closed once the
# node or device is removed.
#
# `baseload node join-token --region REGION` shows the token and the key. The token is for one machine, which
# keeps it in the join file (/etc/baseload/join; ~/.baseload-node/join where the user is not root). So later runs
# on this machine, after its address has changed for example, need no token. Needs POSIX sh, python3, and sshd.
# Where systemd runs and the user is root, the machine's console (/etc/issue) shows its minion id, address and state from
# now on, until it has left all regions; `--console no`: it does not.
set -eu
console=yes

api= token= key= address= port=22 user=$(id -un) host_key= authorized_keys= join_file= upnp=yes
fail() { echo "join: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
        --no-upnp) upnp=; shift; continue ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value"
    case $1 in
        --api) api=$2 ;;
        --token) token=$2 ;;
        --key) key=$2 ;;
        --address) address=$2 ;;
        --port) port=$2 ;;
        --user) user=$2 ;;
        --host-key) host_key=$2 console=no ;; # It is of another SSH server than the machine's own.
        --authorized-keys) authorized_keys=$2 ;;
        --join-file) join_file=$2 ;;
        --console) console=$2 ;;
        *) fail "unknown option $1" ;;
    esac
    shift 2
done
api=${api%/}
[ -n "$api" ] || fail "--api is needed: where the platform's API answers, e.g. http://10.0.0.1:8700"
case $key in
    "ssh-"*" "* | "restrict ssh-"*" "*) ;;
    *) fail "--key is needed: the region's public key, one line such as 'restrict ssh-ed25519 AAAA… baseload'" ;;
esac
command -v python3 >/dev/null || fail "python3 is needed: apt-get install python3"

if [ -z "$host_key" ]; then
    for kind in ed25519 ecdsa rsa; do
        [ -r "/etc/ssh/ssh_host_${kind}_key.pub" ] && host_key=/etc/ssh/ssh_host_${kind}_key.pub && break
    done
fi
[ -r "${host_key:-/nowhere}" ] || fail "no SSH host key in /etc/ssh: is an SSH server installed? (apt-get install openssh-server)"

if [ -z "$join_file" ]; then
    join_file=$HOME/.baseload-node/join
    [ "$(id -u)" -ne 0 ] || join_file=/etc/baseload/join
fi
if [ -z "$token" ] && [ -r "$join_file" ]; then
    while read -r joined_api _ joined_token _; do
        [ "$joined_api" != "$api" ] || token=$joined_token
    done <"$join_file"
fi
region=${token#join_}
region=${region%%_*}
case $token in
    join_reg-?*_?*) ;;
    *) fail "--token is needed: a join token, as \`baseload node join-token --region REGION\` shows it" ;;
esac
if [ -z "$authorized_keys" ]; then
    mkdir -p "$HOME/.ssh" && chmod 700 "$HOME/.ssh"
    authorized_keys=$HOME/.ssh/authorized_keys
fi
case $authorized_keys in /*) ;; *) authorized_keys=$(pwd)/$authorized_keys ;; esac
# The region is written down before the key is let in: without it, the platform changes nothing here.
(
    umask 077
    mkdir -p "$(dirname "$join_file")"
    { grep -vF -- "$api " "$join_file" 2>/dev/null || :; echo "$api $region $token $authorized_keys"; } >"$join_file.part"
    # A power cut leaves the old file or the new one; an old sync takes no names.
    sync "$join_file.part" 2>/dev/null || sync
    mv "$join_file.part" "$join_file"
    sync "$(dirname "$join_file")" 2>/dev/null || sync
)
# Without the console's program the machine joins all the same.
if [ "$console" = yes ] && [ "$join_file" = /etc/baseload/join ] && [ "$(id -u)" -eq 0 ] && [ -d /run/systemd/system ]; then
    python3 -I -c '
import subprocess, sys, tempfile, urllib.request
with tempfile.NamedTemporaryFile(suffix=".py") as file:
    file.write(urllib.request.urlopen(sys.argv[1] + "/console.py", timeout=10).read(1 << 20))
    file.flush()
    subprocess.run([sys.executable, "-I", file.name, "install"], check=True, timeout=60)
' "$api" 2>/dev/null || echo "the console does not show the minion id: $api/console.py could not be fetched or run"
fi
touch "$authorized_keys" && chmod 600 "$authorized_keys"
if ! grep -qxF "$key" "$authorized_keys"; then
    # A last line without its end would swallow ours.
    [ -z "$(tail -c 1 "$authorized_keys")" ] || echo >>"$authorized_keys"
    echo "$key" >>"$authorized_keys"
    # A machine that loses its power now lets the platform in all the same.
    sync "$authorized_keys" "$(dirname "$authorized_keys")" 2>/dev/null || sync
fi

# The keeper of the mapped port is a program of its own, because the machine has no agent yet.
keeper=$(dirname "$join_file")/upnp
write_keeper() {
    # The API puts the program here, file by file, in the script that it serves.
    case $0 in *join.sh) ;; *) return 1 ;; esac
    source=$(dirname "$0")/../../activities/agent/upnp
    [ -r "$source/keeper.py" ] && cp "$source"/*.py "$1/"
}
keep() { # VERB [OPTION...]
    verb=$1
    shift
    python3 -I -S "$keeper" "$verb" --join-file "$join_file" --api "$api" "$@" </dev/null
}
if [ -n "$upnp" ] && [ -z "$address" ]; then
    new=$keeper/upnp.$$
    mkdir -p -m 700 "$new"
    if write_keeper "$new"; then
        rm -rf "$keeper/upnp" && mv "$new" "$keeper/upnp"
        printf 'from upnp.command import main\nraise SystemExit(main())\n' >"$keeper/__main__.py"
        { mapped=$(keep map --port "$port" --user "$user" --host-key "$host_key" 3>&1 >&4 || :); } 4>&1
        [ -z "$mapped" ] || { address=${mapped% *} port=${mapped#* }; }
    else
        rm -rf "$new"
        rmdir "$keeper" 2>/dev/null || :
        mapped=
        echo "no port is mapped on a router: this copy of join.sh is without the program for it. Take $api/join.sh" \
            "instead; or --no-upnp, where the platform reaches this machine without"
    fi
else
    mapped=
    [ ! -r "$keeper/__main__.py" ] || keep withdraw || :
fi

announce() {
    API=$api TOKEN=$token ADDRESS=$address PORT=$port LOGIN=$user HOST_KEY=$host_key python3 - <<'PYTHON'
import base64, hashlib, json, os, socket, sys, urllib.error, urllib.parse, urllib.request

api = os.environ["API"]
with open(os.environ["HOST_KEY"]) as file:
    public_key = " ".join(file.read().split()[:2])
digest = hashlib.sha256(base64.b64decode(public_key.split()[1])).digest()
minion_id = "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def own_address():
    """The address of ours that the API's network sees."""
    url = urllib.parse.urlsplit(api)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((url.hostname, url.port or 80))
        return probe.getsockname()[0]


print("minion id: " + minion_id, flush=True)
try:
    announcement = {
        "token": os.environ["TOKEN"],
        "minion_id": minion_id,
        "host_public_key": public_key,
        "address": os.environ["ADDRESS"] or own_address(),
        "port": int(os.environ["PORT"]),
        "user": os.environ["LOGIN"],
    }
    request = urllib.request.Request(
        api + "/v1/announcements",
        json.dumps(announcement).encode(),
        {"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=20).read()
except urllib.error.HTTPError as error:
    sys.exit("join: %s refused the announcement (%d): %s" % (api, error.code, error.read().decode()))
except (OSError, ValueError) as error:
    sys.exit("join: cannot announce this machine to %s: %s" % (api, error))
print("announced as %(user)s@%(address)s:%(port)d" % announcement)
PYTHON
}
if announce; then
    [ -z "$mapped" ] || keep keep --announced "$address:$port" || :
else
    [ -z "$mapped" ] || keep failed || :
    exit 1
fi
