# Sourced after engines.sh by the tests of the engines: one recipe, the expected result, and
# the processes to kill.
#   AUDIO_CORPORA   has the recordings in fsdd/; else sounds are synthesised
#   MATRIX          a file that gets a row of the table for each engine
tests=$run/tests
expected=$tests/expected # what a run on this machine, without a runner, has given
passed=0 failed=0 shards=24 more=()
tool=$environment/bin/audio-tfrecords
toys=$tests/toys # typed examples: their data, and the data sets
mkdir -p "$toys"
export PYTHONPATH=$PWD/launch/engines/typed${PYTHONPATH:+:$PYTHONPATH} # workers import the class

# Enough work that it can be killed in the middle, in enough shards to see it.
if [ -n "${AUDIO_CORPORA:-}" ]; then
  recipe=(--input "$AUDIO_CORPORA/fsdd" --label-from '(?P<class>\d)_')
else
  [ -d "$tests/sounds" ] || "$python" launch/synthesise.py "$tests/sounds" --clips-per-class 40 --seconds 10
  recipe=(--input "$tests/sounds")
fi
recipe+=(--win-len 1024 --hop 64 --tail pad --num-shards $shards
  --feature 'log_mel=log_mel(n_fft=512,hop=32,n_mels=24)' --feature 'signal=identity()')

# make_expected: once for all engines of the table.
make_expected() {
  [ -z "${MATRIX:-}" ] || [ ! -e "$expected/metadata.json" ] || return 0
  rm -rf "$expected"
  "$tool" record "${recipe[@]}" --output "$expected"
  record_toys expected
}

# check WORDS COMMAND ...: one test.
check() {
  local words=$1 began=$SECONDS
  shift
  if "$@"; then
    passed=$((passed + 1))
    echo "ok: $words ($((SECONDS - began)) s)"
  else
    failed=$((failed + 1))
    echo "FAILED: $words ($((SECONDS - began)) s)"
    return 1
  fi
}

# test_engine ENGINE VERSION COMMAND SUBMIT ...: it gives the same bytes as no engine does.
# `SUBMIT ... ARGUMENTS $more` records; COMMAND is what a reader would type.
test_engine() {
  end_row
  engine=$1 version=$2 command=$3 same=no kills="" seconds=""
  shift 3
  submit=("$@")
  out=$tests/out
  check "$engine: the same bytes" same_bytes || return 0
  same=yes
}

same_bytes() {
  local began=$SECONDS
  rm -rf "$out"
  submit_and_wait || return
  seconds=$((SECONDS - began))
  same_folders "$expected" "$out"
}

# same_folders EXPECTED FOUND: names what differs, down to the members of shards, and says
# whether one of the two is damaged.
same_folders() {
  diff -rq "$1" "$2" || {
    "$python" launch/engines/differences.py "$1" "$2"
    find "$1" "$2" -name metadata.json -printf '%h\n' | xargs -n 1 "$tool" verify
    return 1
  }
}

submit_and_wait() {
  timeout 300 "${submit[@]}" "${recipe[@]}" --output "$out" "${more[@]}" >"$out.log" 2>&1 || {
    grep -o 'audio-tfrecords: .*' "$out.log" || tail -n 5 "$out.log"
    return 1
  }
}

# test_kill WORDS VICTIM: when some shards are finished, kills what has the process id that
# the function VICTIM prints. The job ends with the same bytes by itself, or it says that
# it failed, and does so when it is submitted again.
test_kill() {
  local how=no
  check "$engine: kill -9 of the $1" killed_in_the_middle "$2" || true
  kills+="${kills:+; }$1: $how"
}

killed_in_the_middle() {
  local submitted kept
  rm -rf "$out"
  submit_and_wait >"$out.said" &
  submitted=$!
  if ! within 120 some_finished; then
    echo "  no shard was finished: $(tail -n 1 "$out.log")"
    kill $submitted
    return 1
  fi
  kill -9 "$("$1")" || return
  finished >"$out.kept"
  if wait $submitted; then
    kept=$(wc -l <"$out.kept")
    how="continued by itself"
  else
    [ ! -s "$out.said" ] || echo "  its message: $(head -n 1 "$out.said" | cut -c 1-300)"
    finished >"$out.kept"
    kept=$(wc -l <"$out.kept")
    ${revive:-true}
    submit_and_wait || return
    how="failed; submitted again, it completed"
  fi
  how+=" ($kept of $shards shards kept)"
  echo "  $how"
  [ "$kept" -lt $shards ] && same_folders "$expected" "$out" || return
  # The shards that were finished are still the files that they were.
  (cd "$out" && stat -c '%i %n' -- *.gz) | sort >"$out.after"
  [ -z "$(comm -23 "$out.kept" "$out.after")" ]
}

# finished: inode and name of each finished shard; written again it has another inode.
finished() {
  find "$out/_work/receipts" -name '*.json' -printf '%f\n' 2>/dev/null |
    sed 's/json$/tfrecord.gz/' | (cd "$out" && xargs -r stat -c '%i %n') | sort
}

some_finished() { [ "$(finished | wc -l)" -ge 3 ]; }

# test_typed VICTIM OPTION ...: typed examples are the same bytes with these options of Beam;
# also if what has the process id that VICTIM prints is killed, unless VICTIM is empty.
test_typed() {
  check "$engine: the same bytes of typed examples" same_toys "${@:2}" || return 0
  [ -z "$1" ] ||
    check "$engine: kill -9 of the Python worker, typed examples" same_toys_if_killed "$@" || true
}

record_toys() {
  rm -rf "${toys:?}/$1"
  timeout 300 "$python" launch/engines/typed/record_toys.py "$toys/data" "$toys/$1" "${@:2}" \
    >"$toys/$1.log" 2>&1 || { tail -n 5 "$toys/$1.log" && return 1; }
}

same_toys() { record_toys out "$@" && same_folders "$toys/expected" "$toys/out"; }

same_toys_if_killed() {
  local recording
  rm -rf "$toys/out"
  record_toys out "${@:2}" &
  recording=$!
  within 120 some_toys && kill -9 "$("$1")" || return
  wait $recording && same_folders "$toys/expected" "$toys/out"
}

some_toys() { [ "$(find "$toys/out/script/_work" -path "*/receipts/*" -type f | wc -l)" -ge 3 ]; }

# end_row: what was found out about an engine becomes a row of the table; see matrix.sh.
end_row() {
  [ -n "${engine:-}" ] && [ -n "${MATRIX:-}" ] || return 0
  echo "| $engine | $version | \`$command\` | $same | $kills | $seconds |" >>"$MATRIX"
}

# verdict NAME: the last line of a test.
verdict() {
  end_row
  echo "$1: $passed passed, $failed failed"
  [ "$failed" -eq 0 ]
}
