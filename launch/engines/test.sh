#!/usr/bin/env bash
# Records on the runner in Beam's own package, with and without a killed process, and compares
# every byte with a run without an engine. Takes a minute.
#   [AUDIO_CORPORA=FOLDER] launch/engines/test.sh
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/testing.sh

more=(-- --runner=FnApiRunner)
recorder() { pgrep -f "python[^ ]* $tool record .*--output $out -- --runner=FnApiRunner"; }

make_expected
test_engine "in process" "$beam" "audio-tfrecords record ... -- --runner=FnApiRunner" "$tool" record
test_kill "process itself" recorder
test_typed "" --runner=FnApiRunner
verdict in-process
