#!/usr/bin/env bash
# Tests the adapters with the real PyTorch, Grain, JAX, Keras and Hugging Face datasets;
# arguments go to pytest. Downloads them once, some 3 GB, into an environment of their own
# that also sees the packages in .venv, and changes nothing there.
#   [AUDIO_TFRECORDS_FRAMEWORKS=FOLDER] launch/frameworks/test.sh
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
NOT_HERE=75 # exit status if the packages are not available on this machine
frameworks=${AUDIO_TFRECORDS_FRAMEWORKS:-$PWD/.frameworks}
log=$frameworks.log
if [ -n "${AUDIO_TFRECORDS_FRAMEWORKS:-}" ] && [ -e "$frameworks" ] && [ ! -e "$frameworks/installed" ]; then
  echo "AUDIO_TFRECORDS_FRAMEWORKS=$frameworks was not created by this script, or not completed. Name a new folder." >&2
  exit 1
fi

packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# What .venv has keeps its version: a package that needs another one is an error.
install() {
  "$python" -m venv --clear "$frameworks" || return
  echo "import site; site.addsitedir('$(packages_of "$python")')" \
    >"$(packages_of "$frameworks/bin/python")/audio_tfrecords_venv.pth"
  "$python" -m pip freeze --disable-pip-version-check --exclude-editable |
    grep -E '^[^ ]+==' >"$frameworks/versions.txt"
  mapfile -t wanted_packages < <("$python" launch/frameworks/extras.py)
  "$frameworks/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$frameworks/versions.txt" "${wanted_packages[@]}" || return
  "$frameworks/bin/python" -m pip check --disable-pip-version-check
}

wanted=$( (cat launch/frameworks/* && "$python" launch/frameworks/extras.py &&
  readlink -f "$python") | cksum)
if [ "$(cat "$frameworks/installed" 2>/dev/null)" != "$wanted" ]; then
  echo "Installing PyTorch, Grain, JAX and datasets into $frameworks (once) ..."
  if ! install >"$log" 2>&1; then
    rm -rf "$frameworks"
    echo "They are not available: $(grep -iE 'error|not found|could not|conflict' "$log" |
      head -n 1 | cut -c 1-300)" >&2
    exit "$NOT_HERE"
  fi
  printf '%s' "$wanted" >"$frameworks/installed"
fi
export AUDIO_TFRECORDS_FRAMEWORKS_MUST=1 # a package that is missing is an error
run() { "$frameworks/bin/python" -m pytest "$@"; }
if [ $# -gt 0 ]; then
  run "$@"
  exit
fi
# A process that has loaded JAX or TensorFlow must not fork, as PyTorch's loader does.
forking=()
for file in tests/frameworks/test_{torch,hugging_face,notebook}.py; do
  forking+=("$file")
done
run tests/frameworks "${forking[@]/#/--ignore=}" >"$frameworks/tests.log" 2>&1 &
status=0
run "${forking[@]}" || status=1
wait $! || status=1
cat "$frameworks/tests.log"
exit $status
