#!/bin/sh
# After an installation or update: the daemons' user, and the units as they are now. Nothing is started or stopped.
set -eu

if ! getent passwd eslurm >/dev/null; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers /usr/lib/sysusers.d/eslurm.conf
    else
        useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin eslurm
    fi
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
