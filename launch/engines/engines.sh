# Sourced after environment.sh: where the engines' parts are, and how their processes are
# started and stopped. AUDIO_TFRECORDS_ENGINES chooses the folder; everything is below it.
engines=${AUDIO_TFRECORDS_ENGINES:-$PWD/.engines}
run=$engines/run # logs, process ids and what tests write
beam=$("$python" -c 'import importlib.metadata as m; print(m.version("apache-beam"))')
NOT_HERE=75 # exit status of an engine that is not available on this machine
mkdir -p "$run"

# part NAME COMMAND ...: makes the folder $engines/NAME, once, by a command that runs in it.
part() {
  local folder=$engines/$1 log=$run/fetch-$1.log name=$1
  shift
  [ -d "$folder" ] && return
  rm -rf "$folder.part"
  mkdir -p "$folder.part"
  echo "Downloading $name into $engines (once) ..." >&2
  if ! (cd "$folder.part" && "$@") >"$log" 2>&1; then
    rm -rf "$folder.part"
    echo "$name is not available: $(grep -iE 'error|not found|could not' "$log" | head -n 1 | cut -c 1-300)" >&2
    return "$NOT_HERE"
  fi
  mv "$folder.part" "$folder"
}

# begin NAME COMMAND ...: runs it in the background until `end NAME`.
begin() {
  local name=$1
  shift
  mkdir -p "$(dirname "$run/$name")"
  nohup "$@" >"$run/$name.log" 2>&1 </dev/null &
  echo $! >"$run/$name.pid"
}

# end NAME ...: stops them in this order, by force if they take more than ten seconds.
end() {
  local name pid i
  for name in "$@"; do
    [ -e "$run/$name.pid" ] || continue
    pid=$(cat "$run/$name.pid")
    kill "$pid" 2>/dev/null || true
    for ((i = 0; i < 100; i++)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    rm "$run/$name.pid"
  done
}

# within SECONDS COMMAND ...: waits until the command succeeds, but no longer than that.
within() {
  local tries=$(($1 * 5))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || return 1
    sleep 0.2
  done
}

# listens PORT: whether something on this machine does.
listens() { "$python" -c "import socket; socket.create_connection(('localhost', $1), 1)"; }

# alone SCRIPT ...: goes on as this script in a network that has nothing but a loopback.
# Beam's Java servers listen on all interfaces, whatever host they are given, and run what
# they receive; and all ports are free there. Where this is not allowed, nothing changes.
alone() {
  [ -z "${AUDIO_TFRECORDS_ALONE:-}" ] || return 0
  export AUDIO_TFRECORDS_ALONE=1
  if unshare --map-root-user --net ip link set lo up 2>/dev/null; then
    exec unshare --map-root-user --net bash -c 'ip link set lo up && exec bash "$@"' - "$@"
  fi
  echo "This machine does not allow a separate network: Beam's servers will listen on all interfaces." >&2
}

# What Java 17 hides and Beam, Flink and Spark look into.
java_opens=()
for package in lang lang.invoke lang.reflect io net nio util util.concurrent util.concurrent.atomic; do
  java_opens+=("--add-opens=java.base/java.$package=ALL-UNNAMED")
done
for package in sun.nio.ch sun.nio.cs sun.security.action sun.util.calendar; do
  java_opens+=("--add-opens=java.base/$package=ALL-UNNAMED")
done

# The Python workers are started by the engine, each with this; see worker.py.
worker_environment() {
  printf '{"command": "%s", "env": {"PATH": "%s", "PYTHONPATH": "%s", "WORKER_LOG": "%s"}}' \
    "$PWD/launch/engines/worker.py" "$environment/bin:$PATH" "${PYTHONPATH:-}" "$run/workers.log"
}

# record_with "${options[@]}" :: ARGUMENT ... [-- OPTION ...]: records, with these options of
# Beam before those that were given, so that those count.
record_with() {
  local options=() arguments=()
  while [ "$1" != :: ]; do
    options+=("$1")
    shift
  done
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    arguments+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  exec "$environment/bin/audio-tfrecords" record "${arguments[@]}" -- "${options[@]}" "$@"
}
