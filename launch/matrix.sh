#!/usr/bin/env bash
# Records on every engine that is available on this machine, with and without killed
# processes, and prints a table of the results. Takes some ten minutes.
#   [AUDIO_CORPORA=FOLDER] launch/matrix.sh
set -euo pipefail
source "$(dirname "$0")/environment.sh"
source launch/engines/engines.sh
export MATRIX=$run/matrix.md
rm -rf "$MATRIX" "$run/tests/expected"
status=0
for engine in engines prism flink spark; do
  code=0
  bash "launch/$engine/test.sh" || code=$?
  if [ "$code" = "$NOT_HERE" ]; then
    echo "| $engine | not available here | | | | |" >>"$MATRIX"
  elif [ "$code" != 0 ]; then
    status=1
  fi
done
echo
echo '| engine | version | command | same bytes | kill test | seconds |'
echo '|---|---|---|---|---|---|'
cat "$MATRIX"
exit "$status"
