#!/bin/sh
# Installs what tests need beside Python: Debian's Prometheus and Alertmanager. scripts/system_packages.sh [--print]
#
# Only the programs are wanted: tests start them themselves, on loopback, so the packages' services are neither
# started now nor at boot. Quick when all is there. Needs root; without it, says the line to run.
set -eu

packages='prometheus prometheus-alertmanager'
line="apt-get install -y --no-install-recommends $packages"

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

missing() {
    for package in $packages; do
        # Each package's program is called as the package.
        command -v "$package" >/dev/null 2>&1 || printf '%s ' "$package"
    done
}

# The packages start their services when they are configured, unless this file says that it is not allowed.
forbid_services() {
    policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
    if [ -e "$policy" ]; then return; fi
    trap 'rm -f "$policy"' EXIT
    trap 'exit 130' INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
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
[ "$(id -u)" -eq 0 ] || fail "tests need $wanted: run: sudo $line"

log=$(mktemp)
forbid_services
echo "installing $wanted"
# shellcheck disable=SC2086
if ! { install $wanted || { apt-get -qq update >"$log" 2>&1 && install $wanted; }; }; then
    tail -n 15 "$log" >&2
    fail "the installation failed (all of it: $log)"
fi
rm -f "$log"
if command -v systemctl >/dev/null 2>&1; then
    # shellcheck disable=SC2086
    systemctl --quiet disable $wanted >/dev/null 2>&1 || echo "note: the services stay enabled: systemctl disable $wanted"
fi
[ -z "$(missing)" ] || fail "installed, yet not found on PATH: $(missing)"
echo "installed: $wanted"
