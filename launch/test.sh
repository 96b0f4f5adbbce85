#!/usr/bin/env bash
# Runs the tests in an environment of their own, two at a time; arguments go to pytest.
# Stores, engines, faults, notebooks and corpora take minutes: launch/test.sh tests/systems
# Frameworks for training are packages of their own: launch/frameworks/test.sh
set -euo pipefail
source "$(dirname "$0")/environment.sh"
exec "$python" -m pytest -n 2 --dist worksteal "$@"
