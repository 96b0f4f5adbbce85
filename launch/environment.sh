# Sourced by the other scripts: makes .venv with this package and what they need, once.
# PYTHON chooses the interpreter (3.11 to 3.13); a changed setup.py installs again.
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
environment=${AUDIO_TFRECORDS_VENV:-$PWD/.venv}
python=$environment/bin/python
wanted=$(cksum <setup.py)
if [ "$(cat "$environment/installed" 2>/dev/null)" != "$wanted" ]; then
  # The installation empties the folder first, so a folder that others filled is refused.
  if [ -n "${AUDIO_TFRECORDS_VENV:-}" ] && [ -e "$environment" ] && [ ! -e "$environment/installed" ]; then
    echo "AUDIO_TFRECORDS_VENV=$environment was not created by these scripts, or not completed. Name a new folder." >&2
    exit 1
  fi
  echo "Installing into $environment (once; TensorFlow and Beam take a minute) ..."
  "${PYTHON:-python3}" -m venv --clear "$environment" || {
    echo "Could not create $environment. On Debian: apt-get install python3-venv" >&2
    exit 1
  }
  # uv needs a third of pip's time, but does not read pip's settings, such as a mirror.
  "$python" -m pip install --quiet --disable-pip-version-check uv &&
    "$python" -m uv pip install --quiet --system-certs --compile-bytecode --python "$python" --editable '.[dev,plot]' ||
    "$python" -m pip install --quiet --disable-pip-version-check --editable '.[dev,plot]' ||
    exit 1
  printf '%s' "$wanted" >"$environment/installed"
fi
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-3}
