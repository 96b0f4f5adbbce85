#!/usr/bin/env bash
# Records on Prism, with and without a killed process, and compares every byte with a run
# without an engine. Downloads what it needs; takes two minutes.
#   [AUDIO_CORPORA=FOLDER] launch/prism/test.sh
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_prism || exit
alone launch/prism/test.sh "$@"
source launch/engines/testing.sh
trap 'pkill -f "^$engines/prism/prism" || true' EXIT

prism() { pgrep -f "^$engines/prism/prism"; }

make_expected
test_engine Prism "$beam" launch/prism/submit.sh launch/prism/submit.sh
test_kill Prism prism
test_typed "" --runner=PrismRunner "--prism_location=$engines/prism/prism"
verdict prism
