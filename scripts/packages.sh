#!/bin/sh
# Packages for Debian and RPM systems, in dist/: scripts/packages.sh PYTHON VENV
#
# All that runs is in /usr/lib/eslurm: a Python environment with eslurm and the libraries that requirements/image.txt locks,
# which needs of the host a Python of the same minor version as PYTHON. nfpm, which builds both kinds of packages, is in an
# environment of its own (VENV). Without a way to a package index it says NOT VERIFIED and ends well. What was built is then
# looked at: tests/packages.
set -eu

python=$1
venv=$2
build=build/packages
home=$build/root/usr/lib/eslurm

sh scripts/locked_environment.sh "$python" "$venv" requirements/packages.txt packages \
    "packages: what builds them cannot be installed" || { code=$?; [ "$code" -ne 3 ] || exit 0; exit "$code"; }

ask() { "$python" -c "import platform, sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; print($1)"; }
PYTHON_VERSION=$(ask '"%d.%d" % sys.version_info[:2]')
VERSION=$(ask 'project["version"]')
ARCH=$(ask '{"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())')
MAINTAINER=${MAINTAINER:-the eslurm maintainers <root@localhost>}
export PYTHON_VERSION VERSION ARCH MAINTAINER
site=$home/lib/python$PYTHON_VERSION/site-packages

rm -rf "$build"
mkdir -p "$home/bin" "$site" dist
umask 022
echo "[1/4] installing what requirements/image.txt locks"
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes --target "$site" \
    -r requirements/image.txt
rm -rf "$site/bin"
echo "[2/4] installing eslurm"
"$python" -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --no-build-isolation --target "$site" .
# Scripts for another place, and the place that it was installed from.
rm -rf "$site/bin" "$site"/eslurm-*.dist-info/direct_url.json
sh deploy/containers/trim.sh "$home"
printf 'home = /usr/bin\ninclude-system-site-packages = false\nversion = %s\n' "$PYTHON_VERSION" >"$home/pyvenv.cfg"
ln -s "/usr/bin/python$PYTHON_VERSION" "$home/bin/python"
# Isolated: what users have set for their own Python programs is nothing to these.
ask '"\n".join(name + " " + at.replace(":", " ") for name, at in project["scripts"].items())' |
    while read -r name module function; do
        printf '#!/usr/lib/eslurm/bin/python -I\nfrom %s import %s\n\nraise SystemExit(%s())\n' \
            "$module" "$function" "$function" >"$home/bin/$name"
        chmod 755 "$home/bin/$name"
    done
echo "[3/4] compiling, and manual pages"
# Users cannot write there, and times of files mean nothing after an installation.
"$python" -m compileall -qq -j 0 --invalidation-mode unchecked-hash -s "$build/root" "$site"
PYTHONPATH=.:daemons:cli "$python" scripts/manual.py "$build/root/usr/share/man"
find "$build/root/usr/share/man" -type f -exec gzip -9n {} +
echo "[4/4] packages"
for kind in deb rpm; do
    "$venv/bin/nfpm" package --config deploy/packages/nfpm.yaml --packager "$kind" --target dist/
done
exec "$python" -m pytest tests/packages --quiet -n 0 -p no:cacheprovider
