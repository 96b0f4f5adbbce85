#!/usr/bin/env bash
# Builds wheel and sdist of the last commit into dist/, and tests them: what they hold,
# their metadata, and a recording in an empty environment of each Python that is here.
#   bash launch/release.sh            Python 3.10 to 3.13, those that are found
#   bash launch/release.sh 3.11       only these
# Uploads nothing. Its tools are in an environment of their own (AUDIO_TFRECORDS_RELEASE).
set -euo pipefail
source "$(dirname "$0")/environment.sh"
source launch/beside.sh
tools=${AUDIO_TFRECORDS_RELEASE:-$PWD/.release}
if [ -n "$(git status --porcelain)" ]; then
  echo "There are changes that are not committed. The last commit is what is built: commit them, or stash them." >&2
  exit 1
fi
install_beside "$tools" release
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A folder that was built in before leaves files that later wheels would take along.
mkdir "$work/source"
git archive HEAD | tar -x -C "$work/source"
rm -rf dist
"$tools/bin/python" -m build --outdir dist "$work/source" >"$work/build.log" 2>&1 || {
  cat "$work/build.log" >&2
  exit 1
}
wheel=$(echo dist/*.whl)
version=$("$python" -c 'import beam_pipeline; print(beam_pipeline.__version__)')
"$tools/bin/python" -m twine check --strict dist/*
"$tools/bin/python" -m check_wheel_contents --package "$work/source/beam_pipeline" "$wheel"
"$python" -m launch.release.contents "$work/source" "$wheel" dist/*.tar.gz

# interpreter VERSION: the path of a Python, of the system or of pyenv.
interpreter() {
  local found
  for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$found" -c 'import venv, ensurepip' 2>/dev/null; then
      command -v "$found"
      return
    fi
  done
  return 1
}

"$python" launch/synthesise.py "$work/sounds" --clips-per-class 2 --seconds 1
tried=0
[ $# -gt 0 ] || set -- 3.10 3.11 3.12 3.13
for number in "$@"; do
  if ! found=$(interpreter "$number"); then
    echo "Python $number is not here: not tested."
    continue
  fi
  empty=$work/python$number
  "$found" -m venv "$empty"
  "$empty/bin/python" -m pip install --quiet --disable-pip-version-check "$wheel"
  "$empty/bin/python" -m pip check --disable-pip-version-check
  [ "$("$empty/bin/audio-tfrecords" --version)" = "$version" ]
  cp launch/release/record.py "$work"
  said=$(cd "$work" && env -u PYTHONPATH "$empty/bin/python" record.py sounds "records$number")
  echo "$("$empty/bin/python" --version): audio-tfrecords $version, $said"
  rm -rf "$empty"
  tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || {
  echo "No Python was found to test with." >&2
  exit 1
}
