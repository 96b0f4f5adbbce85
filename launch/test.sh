#!/usr/bin/env bash
# Runs the tests in an environment of their own, two at a time; arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec "$python" -m pytest -n 2 --dist worksteal "$@"
