#!/usr/bin/env bash
# Starts Spark on this machine, for launch/spark/submit.sh, until launch/spark/stop.sh:
#   launch/spark/start.sh            a master, two workers with a core each, a job server
#   launch/spark/start.sh embedded   a job server with a Spark of two cores inside it
# Beam's servers listen on all interfaces and run whatever they receive: use a firewall.
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_spark || exit
echo "$spark_version"
if listens 8097 2>/dev/null; then
  echo "Port 8097 is in use. If a job server is running, stop it with launch/spark/stop.sh" >&2
  exit 1
fi

parts=$spark/$unsent
settings=(
  spark.ui.enabled=false
  "spark.executor.extraClassPath=$parts/beam/*"
  # What failed where a Python worker died is done elsewhere.
  spark.excludeOnFailure.enabled=true
  spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout=5s
)

# Beam's parts first: they need a newer Guava than Spark's.
spark_java() {
  local name=$1
  shift
  begin "spark/$name" java "${java_opens[@]}" "${settings[@]/#/-D}" -Xmx1g \
    -cp "$parts/beam/*:$parts/spark/jars/*" "$@"
}

ready() { [ "$(grep -c 'Registering worker' "$run/spark/master.log")" = 2 ]; }

mkdir -p "$run/spark"
export SPARK_HOME=$parts/spark SPARK_SCALA_VERSION=2.12 SPARK_LOCAL_IP=127.0.0.1 SPARK_LOCAL_DIRS=$run/spark/local
# A worker stays for the next step, which else starts Python anew.
options=(--runner=PortableRunner --job_endpoint=localhost:8097 --environment_cache_millis=5000
  --environment_type=PROCESS "--environment_config=$(worker_environment)")
if [ "${1:-}" = embedded ]; then
  master='local[2]'
  options+=(--sdk_worker_parallelism=2)
else
  master=spark://localhost:7077
  spark_java master org.apache.spark.deploy.master.Master --host localhost --port 7077 --webui-port 8090
  within 60 listens 7077
  for i in 1 2; do
    spark_java "worker$i" org.apache.spark.deploy.worker.Worker --host localhost --cores 1 --memory 1g \
      --work-dir "$run/spark/work" --webui-port "809$i" "$master"
  done
  within 60 ready || {
    echo "The workers did not start. See the logs in $run/spark" >&2
    exit 1
  }
fi
printf '%s\n' "${options[@]}" >"$run/spark/options"
spark_java job-server org.apache.beam.runners.spark.SparkJobServerDriver \
  --spark-master-url="$master" --artifacts-dir="$run/spark/artifacts" \
  --job-host=localhost --job-port=8097 --artifact-port=8096 --expansion-port=0
within 60 listens 8097 || {
  echo "The job server did not start. See $run/spark/job-server.log" >&2
  exit 1
}
echo "Ready. To record: launch/spark/submit.sh --input FOLDER --output FOLDER --win-seconds 1"
