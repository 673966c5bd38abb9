#!/usr/bin/env bash
# Tracks a run with trackio and Weights & Biases themselves, in an environment of their own. It borrows torch and all
# the rest from the environment of the given Python, so that these packages and theirs cannot change it.
set -euo pipefail
python=$(realpath -s "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m venv "$work/env"
site=$("$work/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/borrowed.pth"
"$work/env/bin/python" -m pip install -q --disable-pip-version-check "trackio>=0.43" "wandb>=0.19"
"$work/env/bin/python" -m pytest tests/runs/test_real_trackers.py
