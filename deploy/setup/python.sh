#!/bin/sh
# Prints the path of a Python that is new enough: the project's own once there is one, else python3
# on PATH, else any newer one beside it. One clear line where there is none.
set -eu
new_enough='import sys; raise SystemExit(sys.version_info < (3, 11))'
here=$(cd "$(dirname "$0")/../.." && pwd)
for name in "$here/.venv/bin/python" python3 python3.14 python3.13 python3.12 python3.11; do
    if path=$(command -v "$name" 2>/dev/null) && "$path" -c "$new_enough" 2>/dev/null; then
        echo "$path"
        exit 0
    fi
done
found=$(python3 --version 2>/dev/null || echo 'no python3')
echo "baseload needs Python 3.11 or newer, found: $found. Install it, e.g. apt-get install python3" >&2
exit 1
