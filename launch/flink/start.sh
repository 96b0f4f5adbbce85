#!/usr/bin/env bash
# Starts Flink on this machine, for launch/flink/submit.sh, until launch/flink/stop.sh:
#   launch/flink/start.sh            a JobManager, two TaskManagers with two slots each, a job server
#   launch/flink/start.sh embedded   a job server with a Flink inside it, and a pool of Python workers
# Beam's servers listen on all interfaces and run whatever they receive: use a firewall.
set -euo pipefail
source "$(dirname "$0")/../environment.sh"
source launch/engines/engines.sh
source launch/engines/fetch.sh
fetch_flink || exit
echo "$flink_version"
if listens 8099 2>/dev/null; then
  echo "Port 8099 is in use. If a job server is running, stop it with launch/flink/stop.sh" >&2
  exit 1
fi

settings=(
  rest.port=8081
  jobmanager.memory.process.size=1g
  taskmanager.memory.process.size=1400m
  taskmanager.memory.managed.size=128m
  # Each exchange between steps takes buffers of its own.
  taskmanager.memory.network.min=256m
  taskmanager.memory.network.max=256m
  # Both TaskManagers work, and either has room for all.
  taskmanager.numberOfTaskSlots=2
  cluster.evenly-spread-out-slots=true
  classloader.resolve-order=parent-first
  # What is lost with a TaskManager or a Python worker is done again, after the worker that
  # died is forgotten (see environment_cache_millis).
  restart-strategy.type=fixed-delay
  restart-strategy.fixed-delay.attempts=2
  restart-strategy.fixed-delay.delay=7s
)

ready() { curl -s localhost:8081/overview | grep -q '"taskmanagers":2'; }

export FLINK_HOME=$flink/home FLINK_CONF_DIR=$flink/home/conf FLINK_LOG_DIR=$run/flink
mkdir -p "$FLINK_LOG_DIR/conf"
printf '%s\n' "${settings[@]/=/: }" >"$FLINK_LOG_DIR/conf/config.yaml"
# A worker stays for the next step, which else starts Python anew.
options=(--runner=PortableRunner --job_endpoint=localhost:8099 --parallelism=2 --environment_cache_millis=5000)
if [ "${1:-}" = embedded ]; then
  master='[local]'
  PATH=$environment/bin:$PATH begin flink/pool "$python" -m \
    apache_beam.runners.worker.worker_pool_main --service_port=50000
  options+=(--environment_type=EXTERNAL --environment_config=localhost:50000)
  # One process for each slot.
  options+=(--sdk_worker_parallelism=2)
  within 60 listens 50000
else
  master=localhost:8081
  flags=()
  for setting in "${settings[@]}"; do flags+=(-D "$setting"); done
  begin flink/jobmanager "$flink/home/bin/jobmanager.sh" start-foreground "${flags[@]}"
  begin flink/taskmanager1 "$flink/home/bin/taskmanager.sh" start-foreground "${flags[@]}"
  begin flink/taskmanager2 "$flink/home/bin/taskmanager.sh" start-foreground "${flags[@]}"
  # Not a pool that both ask: their workers have the same names, and one would end the other's.
  options+=(--environment_type=PROCESS "--environment_config=$(worker_environment)")
  within 90 ready || {
    echo "The TaskManagers did not start. See the logs in $run/flink" >&2
    exit 1
  }
fi
printf '%s\n' "${options[@]}" >"$run/flink/options"
begin flink/job-server java "${java_opens[@]}" -Dlog4j2.level=INFO \
  -cp "$flink/$(cat "$flink/jars")/*" org.apache.beam.runners.flink.FlinkJobServerDriver \
  --flink-master="$master" --flink-conf-dir="$FLINK_LOG_DIR/conf" --artifacts-dir="$run/flink/artifacts" \
  --job-host=localhost --job-port=8099 --artifact-port=8098 --expansion-port=0
within 60 listens 8099 || {
  echo "The job server did not start. See $run/flink/job-server.log" >&2
  exit 1
}
echo "Ready. To record: launch/flink/submit.sh --input FOLDER --output FOLDER --win-seconds 1"
