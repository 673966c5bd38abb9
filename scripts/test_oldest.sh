#!/usr/bin/env bash
# The tests on the oldest torch that is supported, 2.6. PyPI has that for CUDA only, which takes gigabytes; Debian 13
# has it for the processor. So: a Debian 13 in a folder, its torch, and everything else from Debian or PyPI.
# Needs root, debootstrap, Debian's packages and about 3 GB. Not part of CI.
#
#   sudo bash scripts/test_oldest.sh [FOLDER] [pytest arguments …]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
root=${1:-/var/tmp/innerloop-oldest}
shift || true
PACKAGES=python3,python3-venv,python3-pip,python3-torch,python3-numpy,python3-sklearn,python3-matplotlib,python3-pil,\
python3-pydantic,python3-jinja2,python3-rich,python3-cloudpickle,python3-pytest,python3-pytest-xdist,\
python3-hypothesis,ca-certificates,procps

[ "$(id -u)" = 0 ] || { echo "this needs root: a Debian in a folder is entered with chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "this needs debootstrap: apt-get install debootstrap" >&2; exit 2; }

if [ ! -e "$root/.made" ]; then
  debootstrap --variant=minbase --include="$PACKAGES" trixie "$root"
  touch "$root/.made"
fi
mkdir -p "$root/project" "$root/dev/shm" "$root/proc"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev/shm" || mount -t tmpfs tmpfs "$root/dev/shm"  # torch shares memory there
trap 'umount -l "$root/dev/shm" "$root/proc" 2>/dev/null || true' EXIT
for file in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  if [ -e "$file" ]; then cp -L "$file" "$root$file"; fi
done
rm -rf "$root/project" && mkdir "$root/project"
tar -C "$here" --exclude=.venv --exclude=.git --exclude=runs --exclude='.*_cache' -cf - . | tar -C "$root/project" -xf -

inside() { chroot "$root" /usr/bin/env HOME=/root OMP_NUM_THREADS=1 PYTHONPATH=/project/src "$@"; }
if [ ! -e "$root/venv/.made" ]; then
  inside python3 -m venv --system-site-packages /venv
  # by name and without dependencies: nothing may bring another torch
  inside /venv/bin/pip install -q --no-deps 'typer>=0.12' shellingham click 'safetensors>=0.4' 'tomli-w>=1.0' \
    typing-extensions annotated-doc
  touch "$root/venv/.made"
fi
inside /venv/bin/python -c 'import sys, torch; print("torch", torch.__version__, "on Python", sys.version.split()[0])'
cd "$root" && inside /bin/sh -c 'cd /project && exec /venv/bin/python -m pytest -m "not slow" -p no:cacheprovider "$@"' sh "${@:-tests}"
