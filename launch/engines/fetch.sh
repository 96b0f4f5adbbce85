# Sourced after engines.sh: fetches the parts of each engine with pip, mvn and go.

fetch_prism() { part prism env GOBIN="$engines/prism.part" go install "github.com/apache/beam/sdks/v2/go/cmd/prism@v$beam"; }

# The job server that belongs to the installed Beam, with the newest Flink that it knows;
# where it is not published, the newest parts that are, with their Flink.
fetch_flink() {
  if [ ! -d "$engines/flink" ]; then
    part flink make_flink 2.2.1 official 2>/dev/null ||
      part flink make_flink 1.19.3 2.62.0 || return
  fi
  flink=$engines/flink
  flink_version=$(cat "$flink/version")
}

# make_flink FLINK BEAM: home/ is a Flink, and $(cat jars) the jars of a job server.
make_flink() {
  local minor=${1%.*} folder jar
  if [ "$2" = official ]; then
    mvn -B -q -Dstyle.color=never "$copy_plugin:copy" -DoutputDirectory="$PWD/beam" \
      -Dartifact="org.apache.beam:beam-runners-flink-$minor-job-server:$beam:jar" || return
    echo beam >jars
    echo "Flink $1, job server of Beam $beam" >version
  else
    echo "$unsent" >jars
    parts_of_beam "flink-$minor" "$2" "$PWD/$(cat jars)" || return
    echo "Flink $1, parts of Beam $2 (for Beam $beam no job server is published)" >version
  fi
  # The scripts are in the one package, for whatever Python; the jars in the other.
  from_index "apache-flink==$1" --only-binary :all: --python-version 3.11 \
    --platform manylinux2014_x86_64 || return
  from_index "apache-flink-libraries==$1" || return
  mkdir home
  unpack_into home
  for folder in home/pyflink home/*/deps; do
    [ ! -d "$folder" ] || cp -r "$folder/." home/
  done
  rm -rf home/pyflink home/apache*
  chmod +x home/bin/*
  [ "$2" != official ] || return 0
  for jar in "$(cat jars)"/*.jar; do
    case ${jar##*/} in
    flink-* | slf4j-* | commons-* | snappy-* | lz4-* | kryo-* | chill-*) ;; # Flink's own
    *) ln "$jar" home/lib/ ;;
    esac
  done
  ln home/lib/log4j-* "$(cat jars)"
}

# Spark's jars, and the parts of Beam's job server for it.
fetch_spark() {
  if [ ! -d "$engines/spark" ]; then part spark make_spark 3.5.9 2.62.0 || return; fi
  spark=$engines/spark
  spark_version=$(cat "$spark/version")
}

make_spark() {
  mkdir -p "$unsent/spark"
  parts_of_beam spark-3 "$2" "$PWD/$unsent/beam" || return
  rm "$unsent"/beam/slf4j-* # Spark has a newer one
  from_index "pyspark==$1" || return
  unpack_into .
  mv pyspark-*/deps/* "$unsent/spark"
  rm -rf pyspark-*
  echo "Spark $1, parts of Beam $2" >version
}

# A job server sends its jars with each job, which takes longer than the job, but for those
# below a folder of this name. The clusters here have them from the beginning, and so keep
# a Python worker from one step to the next.
unsent=gradle/wrapper

copy_plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1

# parts_of_beam RUNNER BEAM FOLDER: a runner and all that it needs.
parts_of_beam() {
  mvn -B -q -Dstyle.color=never -f "$OLDPWD/launch/engines/pom.xml" "$copy_plugin:copy-dependencies" \
    -DincludeScope=runtime -Drunner="$1" -Dbeam="$2" -DoutputDirectory="$3"
}

from_index() { "$python" -m pip download --quiet --no-deps --disable-pip-version-check "$@"; }

# unpack_into FOLDER: the packages that were fetched.
unpack_into() {
  local archive
  for archive in ./*.whl ./*.tar.gz; do
    case $archive in
    *'*'*) continue ;; # there is none
    *.whl) "$python" -m zipfile -e "$archive" "$1" ;;
    *) tar -xzf "$archive" -C "$1" ;;
    esac
    rm "$archive"
  done
}
