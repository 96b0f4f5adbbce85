#!/usr/bin/env bash
# Runs the tests in an environment of their own; arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec "$python" -m pytest "$@"
