#!/bin/sh
# Checks of our own, the last part of `make lint`.
set -e
cd "$(dirname "$0")/.."
.venv/bin/python tools/sizes.py --check
.venv/bin/python tools/print_docs.py --check
