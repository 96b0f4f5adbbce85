# Sourced after environment.sh: environments that also see the packages in .venv, and
# change nothing there.
NOT_HERE=75 # exit status if packages are not available on this machine

packages_of() { "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# What .venv has keeps its version: a package that needs another one is an error.
fill_beside() {
  local folder=$1
  shift
  "$python" -m venv --clear "$folder" || return
  echo "import site; site.addsitedir('$(packages_of "$python")')" \
    >"$(packages_of "$folder/bin/python")/audio_tfrecords_venv.pth"
  "$python" -m pip freeze --disable-pip-version-check --exclude-editable |
    grep -E '^[^ ]+==' >"$folder/versions.txt"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    --constraint "$folder/versions.txt" "$@" || return
  "$folder/bin/python" -m pip check --disable-pip-version-check
}

# install_beside FOLDER EXTRA ...: installs extras of setup.py there, once; ends with 75
# if they are not available. The installation empties the folder first, so one that
# others filled is refused; those of this repository, such as .site, are made again.
install_beside() {
  local folder=$1 log=$1.log wanted listed packages
  shift
  if [[ $folder != "$PWD"/.* && -e $folder && ! -e $folder/installed ]]; then
    echo "$folder was not created by these scripts, or not completed. Delete it, or name a new folder." >&2
    exit 1
  fi
  listed=$("$python" launch/extras.py "$@") || exit 1
  mapfile -t packages <<<"$listed"
  wanted=$( (printf '%s\n' "${packages[@]}" && cat launch/beside.sh && readlink -f "$python") | cksum)
  if [ "$(cat "$folder/installed" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  echo "Installing ${packages[*]} into $folder (once) ..."
  if ! fill_beside "$folder" "${packages[@]}" >"$log" 2>&1; then
    rm -rf "$folder"
    echo "They are not available: $(grep -iE 'error|not found|could not|conflict' "$log" |
      head -n 1 | cut -c 1-300)" >&2
    exit "$NOT_HERE"
  fi
  printf '%s' "$wanted" >"$folder/installed"
}
