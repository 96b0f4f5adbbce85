#!/usr/bin/env bash
# Stops what launch/spark/start.sh has started.
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
end spark/job-server spark/worker1 spark/worker2 spark/master
rm -rf "$run/spark/options" "$run/spark/artifacts" "$run/spark/local" "$run/spark/work"*
