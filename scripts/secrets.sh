#!/bin/sh
# Draws the secrets of the cluster in containers, unless they are there: scripts/secrets.sh [DIRECTORY]
#
# One file each in a directory that only its owner can enter; git and the image's build leave it alone.
set -eu

directory=${1:-$(dirname "$0")/../deploy/containers/secrets}
mkdir -p -m 700 "$directory"
for name in postgres_password grafana_password; do
    [ -s "$directory/$name" ] || (umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$directory/$name")
done
# PostgreSQL and Grafana read theirs as users whom the host does not know.
chmod 644 "$directory/postgres_password" "$directory/grafana_password"
echo "secrets: $directory"
