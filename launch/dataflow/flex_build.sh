#!/usr/bin/env bash
# Builds and pushes the image, and writes the Flex template that starts it:
#
#   PROJECT=my-project BUCKET=gs://my-bucket \
#   IMAGE=europe-west4-docker.pkg.dev/my-project/my-repository/audio-tfrecords:0.2.0 \
#   bash launch/dataflow/flex_build.sh
#
#   TEMPLATE     default: $BUCKET/templates/audio-tfrecords.json
#   --dry-run    shows the commands, and runs nothing
#
# Needs docker, and gcloud with the right to push and to write to the bucket.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for name in PROJECT BUCKET IMAGE; do
  if [ -z "${!name:-}" ]; then
    echo "flex_build.sh: the variable $name is not set. Set it, as the example at the top of this script does." >&2
    exit 2
  fi
done
template=${TEMPLATE:-${BUCKET%/}/templates/audio-tfrecords.json}
dry_run=
[ "${1:-}" = --dry-run ] && dry_run=yes

run() {
  printf '%q ' "$@"
  echo
  [ -n "$dry_run" ] || "$@"
}

run docker build --platform linux/amd64 --file "$root/launch/docker/Dockerfile" \
  --tag "$IMAGE" "$root"
run docker push "$IMAGE"
run gcloud dataflow flex-template build "$template" \
  --project "$PROJECT" \
  --image "$IMAGE" \
  --sdk-language PYTHON \
  --metadata-file "$root/launch/dataflow/metadata.json"
