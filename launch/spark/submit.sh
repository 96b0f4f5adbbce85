#!/usr/bin/env bash
# audio-tfrecords record on the Spark of launch/spark/start.sh; takes the same arguments,
# also more options of Beam after a lone --.
#   launch/spark/submit.sh --input sounds/ --output records/ --win-seconds 1
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
if [ ! -e "$run/spark/options" ]; then
  echo "Spark is not running. Start it with launch/spark/start.sh" >&2
  exit 1
fi
mapfile -t options <"$run/spark/options"
cd "$here"
record_with "${options[@]}" :: "$@"
