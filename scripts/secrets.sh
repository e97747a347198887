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
# For the cells and the etcd of the profile `federation`: an authority, and a certificate for each of them. They are drawn
# together, as nothing is signed with the authority's key later: it is forgotten.
certificates() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=etcd of eslurm in containers" -days 3650 \
        -keyout "$work/ca" -out "$work/etcd_ca"
    for name in etcd1 etcd2 etcd3 alpha beta; do
        printf 'subjectAltName=DNS:%s,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "$name" >"$work/ext"
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout "$work/${name}_key" -out "$work/csr"
        openssl x509 -req -in "$work/csr" -CA "$work/etcd_ca" -CAkey "$work/ca" -CAcreateserial -days 3650 -extfile "$work/ext" \
            -out "$work/${name}_certificate"
    done
}
if ! command -v openssl >/dev/null; then
    echo "secrets: openssl is missing: none are drawn for the profile federation" >&2
elif [ ! -s "$directory/etcd_ca" ]; then
    work=$(umask 077 && mktemp -d)
    trap '[ $? -eq 0 ] || cat "$work/log" >&2; rm -rf "$work"' EXIT
    (umask 077; certificates) 2>"$work/log"
    mv "$work"/*_key "$work"/*_certificate "$directory"
    mv "$work/etcd_ca" "$directory"
fi
# PostgreSQL and Grafana read theirs as users whom the host does not know.
chmod 644 "$directory/postgres_password" "$directory/grafana_password"
echo "secrets: $directory"
