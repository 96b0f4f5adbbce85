#!/usr/bin/env bash
# audio-tfrecords record on Prism, Beam's own small engine, which starts with the job and
# ends with it; takes the same arguments, also more options of Beam after a lone --.
#   launch/prism/submit.sh --input sounds/ --output records/ --win-seconds 1
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_prism || exit
cd "$here"
record_with --runner=PrismRunner "--prism_location=$engines/prism/prism" :: "$@"
