#!/usr/bin/env bash
# Installs Debian's Chromium, in which the tests look at pages; without it those tests are skipped. Needs root and apt.
#
#   sudo bash scripts/browser.sh
set -euo pipefail
for name in chromium chromium-browser google-chrome chrome; do
  if command -v "$name" >/dev/null; then
    echo "$("$name" --version) is there: $(command -v "$name")"
    exit 0
  fi
done
command -v apt-get >/dev/null || { echo "this needs apt-get; elsewhere install Chromium by hand" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "this needs root: sudo bash scripts/browser.sh" >&2; exit 2; }
apt-get update -qq
apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
chromium --version
