#!/bin/sh
# Makes the virtual environment VENV with the interpreter PYTHON; keeps one that works.
# Debian's python3 comes without ensurepip: as root it is installed, elsewhere the command is said.
set -eu
python=$1
venv=$2

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; }

has_ensurepip() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

is_usable() { [ -x "$1" ] && is_new_enough "$1" && "$1" -m pip --version >/dev/null 2>&1; }

install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq && apt-get install -y -qq -o Dpkg::Use-Pty=0 --no-install-recommends "$1"
}

if is_usable "$venv/bin/python"; then
    exit 0
fi

needs="rmqtool needs Python 3.10 or later"
command -v "$python" >/dev/null || fail "$needs, and there is no '$python' here: make PYTHON=/path/to/python3"
is_new_enough "$python" || fail "$needs, and '$python' is $("$python" -V 2>&1): make PYTHON=/path/to/python3"

if ! has_ensurepip; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        echo "Installing $package with apt ..."
        install "$package" </dev/null || true
    fi
    has_ensurepip ||
        fail "'$python' cannot make a virtual environment. On Debian and Ubuntu: sudo apt-get install $package"
fi

"$python" -m venv --clear "$venv"
