#!/bin/sh
# Makes the certificates that tests use, with openssl, into this directory. They end after 2100 and protect nothing.
#
# ca, and by it: server (localhost, 127.0.0.1, ::1), renewed (the same with another key), elsewhere (other names),
# serving (not for clients), named (eslurm.test), expired. locked: a key with a password.
# client-ca, and by it: calling (for clients alone). other-ca and stranger: of another authority; short-ca: one that ends
# in 2121. No authority's key is kept but those of ed25519 and p521, which are their own authorities and have keys that
# gRPC does not take.
set -eu
cd "${1:-$(dirname "$0")}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
here='DNS:localhost,IP:127.0.0.1,IP:::1'
both='serverAuth,clientAuth'

key() { # FILE [OPTION ...]
    kept=$1
    shift
    [ $# -gt 0 ] || set -- -algorithm EC -pkeyopt ec_paramgen_curve:P-256
    openssl genpkey -quiet "$@" -out "$kept"
}

authority() { # NAME SUBJECT END [KEY'S OPTION ...]
    name=$1 subject=$2 until=$3
    shift 3
    key "$work/$name.key" "$@"
    set -- "$name" "$subject" "$until"
    : >"$work/$1.index"
    echo 1000 >"$work/$1.serial"
    {
        printf '[ca]\ndefault_ca=d\n[d]\ndatabase=%s\nserial=%s\n' "$work/$1.index" "$work/$1.serial"
        printf 'new_certs_dir=%s\ndefault_md=sha256\npolicy=p\nunique_subject=no\n' "$work"
        printf '[p]\ncommonName=supplied\n'
    } >"$work/$1.cnf"
    printf 'basicConstraints=critical,CA:TRUE\nsubjectKeyIdentifier=hash\n' >"$work/ext"
    openssl req -new -key "$work/$1.key" -subj "/CN=$2" -out "$work/csr"
    sign "$1" "$1.pem" "$3" -selfsign
}

sign() { # AUTHORITY FILE END OPTION ...
    authority=$1 file=$2 end=$3
    shift 3
    openssl ca -batch -notext -config "$work/$authority.cnf" -keyfile "$work/$authority.key" -extfile "$work/ext" \
        -startdate 20200101000000Z -enddate "$end" -in "$work/csr" -out "$file" "$@" 2>"$work/log" || {
        cat "$work/log" >&2
        exit 1
    }
}

pair() { # AUTHORITY NAME NAMES USE END
    key "$2.key"
    printf 'subjectAltName=%s\nextendedKeyUsage=%s\nauthorityKeyIdentifier=keyid\n' "$3" "$4" >"$work/ext"
    openssl req -new -key "$2.key" -subj "/CN=$2" -out "$work/csr"
    sign "$1" "$2.pem" "$5" -cert "$1.pem"
}

authority ca 'eslurm tests' 21300101000000Z
authority short-ca 'not for long' 21210101000000Z
authority other-ca 'somebody else' 21300101000000Z
authority client-ca 'clients alone' 21300101000000Z
pair ca server "$here" "$both" 21200101000000Z
pair ca renewed "$here" "$both" 21210101000000Z
pair ca elsewhere 'DNS:elsewhere.test,IP:192.0.2.1' "$both" 21200101000000Z
pair ca serving "$here" serverAuth 21200101000000Z
pair ca named DNS:eslurm.test "$both" 21200101000000Z
pair ca expired "$here" "$both" 20200201000000Z
pair other-ca stranger "$here" "$both" 21200101000000Z
pair client-ca calling DNS:calling.test clientAuth 21200101000000Z
openssl ec -in server.key -aes128 -passout pass:locked -out locked.key 2>/dev/null
for kind in 'ed25519 -algorithm ED25519' 'p521 -algorithm EC -pkeyopt ec_paramgen_curve:P-521'; do
    # shellcheck disable=SC2086  # a list of words
    set -- $kind
    name=$1
    shift
    authority "$name" "$name" 21300101000000Z "$@"
    cp "$work/$name.key" "$name.key"
done
