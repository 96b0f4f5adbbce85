#!/usr/bin/env bash
# The benchmark of readers, with the libraries that it compares with: they are installed
# once into an environment of their own, .readers, which also sees the packages in .venv,
# and those that launch/frameworks/test.sh installed, if it has. PyTorch takes some 5 GB.
#   bash tests/benchmarks/readers.sh [--runs 3] [--only random,loader] ...
set -euo pipefail
cd "$(dirname "$0")/../.."
source launch/environment.sh
readers=$PWD/.readers
frameworks=${AUDIO_TFRECORDS_FRAMEWORKS:-$PWD/.frameworks}

packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
install() { "$readers/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

if [ ! -e "$readers/installed" ]; then
  echo "Installing PyTorch, Grain, datasets, webdataset, streaming into $readers (once) ..." >&2
  "$python" -m venv --clear "$readers"
  {
    packages_of "$python"
    if [ -e "$frameworks/installed" ]; then packages_of "$frameworks/bin/python"; fi
  } >"$(packages_of "$readers/bin/python")/others.pth"
  "$python" -m pip freeze --disable-pip-version-check --exclude-editable |
    grep -E '^(numpy|protobuf)==' >"$readers/versions.txt"
  install --constraint "$readers/versions.txt" \
    torch grain array_record datasets webdataset Brotli catalogue pillow python-snappy \
    tqdm transformers 'xxhash<4' zstd
  # It asks for older versions of numpy and transformers, which it works without, and for
  # the clients of all stores, which local files do not need.
  install --no-deps mosaicml-streaming torchvision
  touch "$readers/installed"
fi
exec "$readers/bin/python" -m tests.benchmarks readers "$@"
