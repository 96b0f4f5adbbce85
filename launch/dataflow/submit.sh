#!/usr/bin/env bash
# Records on Dataflow with the options that suit this job, and waits for its end:
#
#   PROJECT=my-project REGION=europe-west4 BUCKET=gs://my-bucket IMAGE=my-image \
#   bash launch/dataflow/submit.sh --input gs://my-bucket/sounds \
#     --output gs://my-bucket/records --win-seconds 1
#
#   --project P  --region R  --bucket gs://B   or PROJECT, REGION, BUCKET
#   --image I         or IMAGE: of launch/docker, on workers; without one, every worker
#                     installs this folder and all it needs when it starts, some minutes
#   --job-name N      or JOB_NAME
#   --machine-type M  or MACHINE_TYPE; n2-standard-4
#   --max-workers N   or MAX_WORKERS; 20
#   --disk-gb N       or DISK_GB; 50
#   --dry-run         shows the command, and runs nothing
#
# Everything else goes to "audio-tfrecords record"; options of Beam stand after a lone
# --, and count more than those below. Needs the Python and the Beam of the workers
# (those of launch/docker/Dockerfile), and: pip install '.[gcp]'
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

project=${PROJECT:-} region=${REGION:-} bucket=${BUCKET:-} image=${IMAGE:-}
job_name=${JOB_NAME:-audio-tfrecords-$(date -u +%Y%m%d-%H%M%S)}
machine_type=${MACHINE_TYPE:-n2-standard-4}
max_workers=${MAX_WORKERS:-20}
disk_gb=${DISK_GB:-50}
dry_run=
record=() beam=()

while [ $# -gt 0 ]; do
  case $1 in
    --)
      shift
      beam=("$@")
      break
      ;;
    --dry-run) dry_run=yes ;;
    --project=* | --region=* | --bucket=* | --image=* | --job-name=* | \
      --machine-type=* | --max-workers=* | --disk-gb=*)
      name=${1%%=*}
      name=${name#--}
      printf -v "${name//-/_}" '%s' "${1#*=}"
      ;;
    --project | --region | --bucket | --image | --job-name | \
      --machine-type | --max-workers | --disk-gb)
      [ $# -gt 1 ] || { echo "submit.sh: $1 needs a value, as in $1 VALUE" >&2 && exit 2; }
      name=${1#--}
      printf -v "${name//-/_}" '%s' "$2"
      shift
      ;;
    *) record+=("$1") ;;
  esac
  shift
done

for name in project region bucket; do
  if [ -z "${!name}" ]; then
    echo "submit.sh: --$name is missing. Give it, or set the variable ${name^^}." >&2
    exit 2
  fi
done

options=(
  --runner=DataflowRunner
  --project="$project"
  --region="$region"
  --temp_location="${bucket%/}/tmp"
  --staging_location="${bucket%/}/staging"
  --job_name="$job_name"
  # Four gigabytes a core are plenty: a worker's process needs a quarter of one.
  --machine_type="$machine_type"
  --max_num_workers="$max_workers"
  # For the image, and the shards in the making.
  --disk_size_gb="$disk_gb"
  # While one thread waits for the store, the other computes; more would only take
  # turns on the core that each process has.
  --number_of_worker_harness_threads=2
  # Nothing is looked up in __main__: transforms have names that can be imported.
  --no_save_main_session
  # The list of what is installed here would be staged with the job: addresses of
  # private packages, and tokens in them.
  --experiments=disable_logging_submission_environment
)
if [ -n "$image" ]; then
  options+=(--sdk_container_image="$image")
else
  options+=(--setup_file="$root/setup.py")
fi

set -- "${PYTHON:-python3}" -m beam_pipeline record \
  ${record+"${record[@]}"} -- "${options[@]}" ${beam+"${beam[@]}"}
if [ -n "$dry_run" ]; then
  printf '%q ' "$@"
  echo
  exit
fi
exec "$@"
