#!/usr/bin/env bash
# Starts a job from the Flex template; its parameters are NAME=VALUE, those of
# metadata.json, which are the flags of "audio-tfrecords record" with underscores:
#
#   PROJECT=my-project REGION=europe-west4 BUCKET=gs://my-bucket IMAGE=my-image \
#   bash launch/dataflow/flex_run.sh input=gs://my-bucket/sounds \
#     output=gs://my-bucket/records win_seconds=1 'feature=log_mel=log_mel(n_mels=64)'
#
#   TEMPLATE, JOB_NAME, MACHINE_TYPE, MAX_WORKERS     have defaults
#   --dry-run    shows the command, and runs nothing
#
# It returns when the job is created; "audio-tfrecords status --watch OUTPUT" follows it.
set -euo pipefail
for name in PROJECT REGION BUCKET IMAGE; do
  if [ -z "${!name:-}" ]; then
    echo "flex_run.sh: the variable $name is not set. Set it, as the example at the top of this script does." >&2
    exit 2
  fi
done
dry_run=
# Calls of transforms hold commas, gcloud's separator; ^~^ names another.
parameters="^~^sdk_container_image=$IMAGE"
for parameter in "$@"; do
  case $parameter in
    --dry-run) dry_run=yes ;;
    *'~'*)
      echo "flex_run.sh: a parameter must not contain ~, which separates parameters; got $parameter" >&2
      exit 2
      ;;
    [a-z]*=*) parameters+="~$parameter" ;;
    *)
      echo "flex_run.sh: write parameters as NAME=VALUE; got $parameter" >&2
      exit 2
      ;;
  esac
done

set -- gcloud dataflow flex-template run \
  "${JOB_NAME:-audio-tfrecords-$(date -u +%Y%m%d-%H%M%S)}" \
  --project "$PROJECT" \
  --region "$REGION" \
  --template-file-gcs-location "${TEMPLATE:-${BUCKET%/}/templates/audio-tfrecords.json}" \
  --temp-location "${BUCKET%/}/tmp" \
  --staging-location "${BUCKET%/}/staging" \
  --worker-machine-type "${MACHINE_TYPE:-n2-standard-4}" \
  --max-workers "${MAX_WORKERS:-20}" \
  --parameters "$parameters"
if [ -n "$dry_run" ]; then
  printf '%q ' "$@"
  echo
  exit
fi
exec "$@"
