#!/usr/bin/env bash
# Records on every engine that can be had on this machine, with and without accidents, and
# prints a table of what came of it. Takes some ten minutes.
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
    echo "| $engine | not here | | | | |" >>"$MATRIX"
  elif [ "$code" != 0 ]; then
    status=1
  fi
done
echo
echo '| engine | version | command | same bytes | kill test | seconds |'
echo '|---|---|---|---|---|---|'
cat "$MATRIX"
exit "$status"
