#!/usr/bin/env bash
# Builds the documentation as a site in site/, which opens without a server or a network:
#   bash launch/site.sh           builds it; a broken link is an error
#   bash launch/site.sh serve     shows it on localhost, and builds again what is edited
# Installs MkDocs once, into an environment of its own (AUDIO_TFRECORDS_SITE) that also
# sees the packages in .venv, and changes nothing there.
set -euo pipefail
source "$(dirname "$0")/environment.sh"
source launch/beside.sh
tools=${AUDIO_TFRECORDS_SITE:-$PWD/.site}
install_beside "$tools" site
export NO_MKDOCS_2_WARNING=1 # which says that Material has a successor
if [ $# -gt 0 ]; then
  exec "$tools/bin/python" -m mkdocs "$@"
fi
"$tools/bin/python" -m mkdocs build --strict # with --quiet, warnings are no errors
"$tools/bin/python" -m launch.site.check site
