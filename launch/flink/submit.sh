#!/usr/bin/env bash
# audio-tfrecords record on the Flink of launch/flink/start.sh; takes the same arguments,
# also more options of Beam after a lone --.
#   launch/flink/submit.sh --input sounds/ --output records/ --win-seconds 1
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
if [ ! -e "$run/flink/options" ]; then
  echo "Flink is not running. Start it with launch/flink/start.sh" >&2
  exit 1
fi
mapfile -t options <"$run/flink/options"
cd "$here"
record_with "${options[@]}" :: "$@"
