#!/usr/bin/env bash
# Records on Spark on this machine, with and without killed processes, and compares every
# byte with a run without an engine. Downloads what it needs; takes some five minutes.
#   [AUDIO_CORPORA=FOLDER] launch/spark/test.sh
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_spark || exit
alone launch/spark/test.sh "$@"
source launch/engines/testing.sh
trap launch/spark/stop.sh EXIT

executor() { pgrep -P "$(cat "$run/spark/worker1.pid")" | tail -n 1; }
cluster_worker() { pgrep -P "$(executor)" | tail -n 1; }
worker() { pgrep -P "$(cat "$run/spark/job-server.pid")" | tail -n 1; }
submit=launch/spark/submit.sh
test_typed_here() {
  mapfile -t options <"$run/spark/options"
  test_typed "$1" "${options[@]}"
}

make_expected
launch/spark/start.sh
test_engine "Spark cluster" "$spark_version" "launch/spark/start.sh; $submit" $submit
test_kill "Python worker" cluster_worker
test_typed_here cluster_worker
test_kill "executor" executor
launch/spark/stop.sh

launch/spark/start.sh embedded
test_engine "Spark, embedded" "$spark_version" "launch/spark/start.sh embedded; $submit" $submit
test_kill "Python worker" worker
test_typed_here ""
verdict spark
