#!/usr/bin/env bash
# Tests the adapters with the real PyTorch, Grain, JAX, Keras and Hugging Face datasets;
# arguments go to pytest. Downloads them once, some 3 GB, into an environment of their own
# that also sees the packages in .venv, and changes nothing there.
#   [AUDIO_TFRECORDS_FRAMEWORKS=FOLDER] launch/frameworks/test.sh
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/beside.sh
frameworks=${AUDIO_TFRECORDS_FRAMEWORKS:-$PWD/.frameworks}
install_beside "$frameworks" torch grain jax huggingface
export AUDIO_TFRECORDS_FRAMEWORKS_MUST=1 # a package that is missing is an error
run() { "$frameworks/bin/python" -m pytest "$@"; }
if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
# A process that has loaded JAX or TensorFlow must not fork, as PyTorch's loader does.
forking=tests/frameworks/test_torch.py
run tests/frameworks --ignore="$forking" >"$frameworks/tests.log" 2>&1 &
status=0
run "$forking" || status=1
wait $! || status=1
cat "$frameworks/tests.log"
exit $status
