#!/usr/bin/env bash
# Stops what launch/flink/start.sh has started.
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
end flink/job-server flink/taskmanager1 flink/taskmanager2 flink/jobmanager flink/pool
rm -rf "$run/flink/options" "$run/flink/artifacts"
