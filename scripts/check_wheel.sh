#!/usr/bin/env bash
# Builds what a release consists of, looks at it as the package index would, installs the wheel in an empty
# environment, and runs the command from an empty folder there. With a folder as second argument it keeps the archives.
set -euo pipefail
python=$(realpath -s "$1")
keep=${2:-}
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# the wheel is built from the source archive, so that an archive that lacks something is noticed
"$python" -m build --no-isolation --outdir "$work/dist" "$root" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$python" -m twine check --strict "$work"/dist/*
if "$python" -m zipfile -l "$work"/dist/*.whl | grep -E 'innerloop_studies|/(papers|bench|reproduce|recorded)/'; then
  echo "wheel: the library's has files of the studies"; exit 1
fi
"$python" -m venv "$work/env"
"$work/env/bin/python" -m pip install -q --no-compile --disable-pip-version-check torch==2.13.0
"$work/env/bin/python" -m pip install -q --no-compile --disable-pip-version-check "$work"/dist/*.whl
mkdir "$work/empty" && cd "$work/empty"
"$work/env/bin/innerloop" --version
"$work/env/bin/innerloop" ls >/dev/null
"$work/env/bin/innerloop" train sine-maml outer.steps=20 eval.episodes=20 --json | tail -n 1
echo "wheel: installed in an empty environment, 'ls' and one recipe ran"
# the studies are a wheel of their own: without it the command says how to get it
code=0; "$work/env/bin/innerloop" reproduce ls 2>"$work/said" >/dev/null || code=$?
[ "$code" = 2 ] && grep -q innerloop-studies "$work/said" || { cat "$work/said"; exit 1; }
"$python" -m build --no-isolation --wheel --outdir "$work/studies" "$root/studies" >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
"$python" -m twine check --strict "$work"/studies/*
"$work/env/bin/python" -m pip install -q --no-compile --no-deps --disable-pip-version-check "$work"/studies/*.whl
"$work/env/bin/innerloop" reproduce ls --json >/dev/null
"$work/env/bin/innerloop" reproduce landscape-fig1 --json | tail -c 100
echo "wheel of the studies: installed beside it, 'reproduce' ran"
if [ -n "$keep" ]; then
  mkdir -p "$root/$keep" && cp "$work"/dist/* "$work"/studies/* "$root/$keep/"
  echo "archives: $keep/"
fi
