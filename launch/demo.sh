#!/usr/bin/env bash
# Records a folder of audio, shows it, and fits a tiny model on it:
#   bash launch/demo.sh              synthesised sounds
#   bash launch/demo.sh YOUR_FOLDER  your recordings, one folder for each class
set -euo pipefail
sounds=${1:+$(realpath "$1")}
source "$(dirname "$0")/environment.sh"
run=$environment/bin/audio-tfrecords
rm -rf demo
mkdir demo
if [ -z "$sounds" ]; then
  sounds=$PWD/demo/sounds
  "$python" launch/synthesise.py "$sounds"
fi

step() { printf '\n$ %s\n' "$*"; }

set -- --input "$sounds" --sample-rate 16000 --win-seconds 1 --hop-seconds 0.5 --tail pad \
  --splits train=.7,test=.3 --stratify \
  --feature 'log_mel=log_mel(n_fft=1024,hop=256,n_mels=64)' --feature 'signal=identity()'
step audio-tfrecords record "$@" --output demo/records --max-rejected 100%
"$run" record "$@" --output demo/records --max-rejected 100%

step audio-tfrecords show demo/records --split test -n 3 --plot demo/examples.png
"$run" show demo/records --split test -n 3 --plot demo/examples.png

step python launch/train/demo.py demo/records
"$python" launch/train/demo.py demo/records
