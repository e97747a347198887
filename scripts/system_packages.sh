#!/bin/sh
# Installs what tests need beside Python: Debian's Prometheus, Alertmanager, PostgreSQL server and etcd, Open MPI with
# mpi4py, MPICH, Slurm's client of PMI-2, OTF2's bindings, and systemd's checks of units.
# scripts/system_packages.sh [--print]
#
# Only the programs are wanted: tests start them themselves, on loopback or a Unix socket, so the packages' services are
# neither started now nor at boot, and no database cluster is made. Quick when all is there. Needs root, or sudo that asks
# for no password; otherwise says the line to run.
set -eu

packages='prometheus prometheus-alertmanager postgresql etcd-server etcd-client openmpi-bin python3-mpi4py mpich libpmi2-0 python3-otf2 systemd'
line="apt-get install -y --no-install-recommends $packages"

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

missing() {
    for package in $packages; do
        there "$package" || printf '%s ' "$package"
    done
}

there() {
    case $1 in
    postgresql)
        # Debian keeps each release's programs out of PATH.
        command -v postgres >/dev/null 2>&1 && return
        for program in "${POSTGRESQL_LIB:-/usr/lib/postgresql}"/*/bin/postgres; do
            [ ! -x "$program" ] || return 0
        done
        return 1
        ;;
    etcd-server)
        command -v etcd >/dev/null 2>&1
        ;;
    etcd-client)
        command -v etcdctl >/dev/null 2>&1
        ;;
    openmpi-bin)
        command -v mpirun >/dev/null 2>&1
        ;;
    systemd)
        command -v systemd-analyze >/dev/null 2>&1
        ;;
    mpich)
        command -v mpichversion >/dev/null 2>&1
        ;;
    lib*)
        for library in "${LIBRARIES:-/usr/lib}"/*/"${1%-*}".so."${1##*-}"; do
            [ ! -e "$library" ] || return 0
        done
        return 1
        ;;
    python3-*)
        # For the system's Python, which a virtual environment does not see.
        [ -d "${DIST_PACKAGES:-/usr/lib/python3/dist-packages}/${1#python3-}" ]
        ;;
    *)
        # The package's program is called as the package.
        command -v "$1" >/dev/null 2>&1
        ;;
    esac
}

# The packages start their services when they are configured, unless this file says that it is not allowed.
forbid_services() {
    policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
    if [ -e "$policy" ]; then return; fi
    made="$made $policy"
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

# A PostgreSQL server's package makes a cluster of its own, unless its configuration says that it must not.
forbid_clusters() {
    clusters=${CREATECLUSTER_D:-/etc/postgresql-common/createcluster.d}
    mkdir -p "$clusters"
    made="$made $clusters/eslurm-tests.conf"
    echo 'create_main_cluster = false' >"$clusters/eslurm-tests.conf"
}

install() {
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086  # lists of packages
    apt-get -qq install -y --no-install-recommends "$@" >"$log" 2>&1
}

if [ "${1:-}" = --print ]; then
    echo "$line"
    exit 0
fi
wanted=$(missing)
if [ -z "$wanted" ]; then
    echo "there already: $packages"
    exit 0
fi
command -v apt-get >/dev/null 2>&1 || fail "tests need $wanted: install them with this system's packager (no apt-get)"
if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail "tests need $wanted: run: sudo $line"
    exec sudo -n sh "$0"
fi

log=$(mktemp)
made=
# shellcheck disable=SC2086  # a list of files
trap 'rm -f $made' EXIT
trap 'exit 130' INT TERM
forbid_services
case $wanted in *postgresql*) forbid_clusters ;; esac
echo "tests need $wanted: installing (Debian packages; no service is started)"
# shellcheck disable=SC2086
if ! { install $wanted || { apt-get -qq update >"$log" 2>&1 && install $wanted; }; }; then
    tail -n 15 "$log" >&2
    fail "the installation failed (all of it: $log)"
fi
rm -f "$log"
if command -v systemctl >/dev/null 2>&1; then
    for package in $wanted; do
        case $package in
        etcd-server) service=etcd ;;
        etcd-client | openmpi-bin | mpich | lib* | python3-* | systemd) continue ;;
        *) service=$package ;;
        esac
        systemctl --quiet disable "$service" >/dev/null 2>&1 || echo "note: a service stays enabled: systemctl disable $service"
    done
fi
[ -z "$(missing)" ] || fail "installed, yet not found: $(missing)"
echo "installed: $wanted"
