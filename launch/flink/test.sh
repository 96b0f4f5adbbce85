#!/usr/bin/env bash
# Records on Flink on this machine, with and without killed processes, and compares every
# byte with a run without an engine. Downloads what it needs; takes some five minutes.
#   [AUDIO_CORPORA=FOLDER] launch/flink/test.sh [--fetch]      --fetch: only downloads
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_flink || exit
[ "${1:-}" != --fetch ] || exit 0
alone launch/flink/test.sh "$@"
source launch/engines/testing.sh
trap launch/flink/stop.sh EXIT

taskmanager() { cat "$run/flink/taskmanager2.pid"; }
worker_of() { pgrep -P "$(cat "$run/flink/$1.pid")" | tail -n 1; }
cluster_worker() { worker_of taskmanager1; }
pool_worker() { worker_of pool; }
submit=launch/flink/submit.sh
test_typed_here() {
  mapfile -t options <"$run/flink/options"
  test_typed "$1" "${options[@]}"
}

make_expected
launch/flink/start.sh
test_engine "Flink cluster" "$flink_version" "launch/flink/start.sh; $submit" $submit
test_kill "Python worker" cluster_worker
test_typed_here cluster_worker
test_kill "TaskManager" taskmanager
launch/flink/stop.sh

launch/flink/start.sh embedded
test_engine "Flink, embedded" "$flink_version" "launch/flink/start.sh embedded; $submit" $submit
test_kill "Python worker" pool_worker
test_typed_here pool_worker
verdict flink
