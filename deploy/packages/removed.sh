#!/bin/sh
# After a removal or update. Users, keys, configuration and state stay: they are the site's.
set -eu

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
