#!/bin/sh
# Takes from the base image what no daemon, command or job's script needs: slim.sh, in a stage of the image's build.
#
# Packages go the way of the package manager, so that its list of what is installed stays true for those who scan images.
# Licences stay. What python:*-slim lays at /usr/local goes, too: the build lays its own, trimmed one there.
set -eu

# Installed packages whose names match.
installed() {
    dpkg-query --show --showformat '${db:Status-Abbrev}${Package}\n' | sed -n 's/^ii *//p' | grep -Ex "$1" || true
}

# Installing software, file systems, and Perl, which only the set-up of packages is written in, with the database library that
# else only accounts in a file of their own (pam_userdb) would use. What stays of the dependencies on these is on debconf, and
# that at set-up only.
unneeded='apt|libapt-pkg.*|gpgv|sqv|debian-archive-keyring|adduser|debconf|usrmerge|e2fsprogs|logsave|libext2fs.*|libss2'
unneeded="$unneeded|libgnutls30.*|libp11-kit0.*|libhogweed.*|libnettle.*|libtasn1-6|libunistring.*|libidn2-0"
unneeded="$unneeded|perl|perl-modules-.*|libperl5.*|lib.*-perl|libgdbm-compat.*|libdb5\.3.*"
purge() {
    # shellcheck disable=SC2046  # a word for each package
    dpkg --purge --force-depends --force-remove-essential --force-remove-protected $(installed "$1") >/tmp/purge.log 2>&1 ||
        { cat /tmp/purge.log >&2; exit 1; }
}
purge "$unneeded"
# Others' scripts for being removed may still want it.
purge perl-base
rm -f /tmp/purge.log

cd /usr/share
find doc -mindepth 1 ! -type d ! -name copyright -delete
find doc -mindepth 1 -type d -empty -delete
rm -rf locale/* man/* info/* lintian bash-completion bug gdb gcc perl perl5 zoneinfo/right
# Character sets of the C library that nobody speaks any more; ASCII and UTF-8 are built in.
rm -rf /usr/lib/*-linux-gnu/gconv /usr/lib/*-linux-gnu/perl /usr/lib/*-linux-gnu/perl-base
rm -rf /etc/apt /var/lib/apt /var/cache/* /var/log/* /usr/local/bin/* /usr/local/include /usr/local/lib
