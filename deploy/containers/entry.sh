#!/bin/sh
# The entry point of every container: eslurm-container esctld|essatd|esestd|esnoded [OPTION ...], login, or a command.
#
# Brings what a daemon needs to where it reads it, adds the options that are alike in all containers, and gives up
# root where root is not needed. What each container has to be told:
#
#   /etc/eslurm/eslurm.toml         esctld, esestd   the cluster's configuration
#   /run/secrets/postgres_password  esctld           the password of the role in controller.store_url
#   /run/secrets/etcd_*             esctld           of a federation's cell: etcd_ca, etcd_certificate, etcd_key
#   ESLURM_LISTEN                   all daemons      host:port at which the others find it; default: all addresses
#   ESLURM_CLUSTER                  all but esestd   the cluster's name
#   ESLURM_MEMBERS                  one esctld       whom it makes members: `ROLE NAMES DIRECTORY OWNER` a line, where
#                                                    DIRECTORY is the state directory of that daemon
#   ESLURM_CONTROLLERS              essatd, esnoded  host:port,...
#   ESLURM_SATELLITES               esnoded          host:port,...
#   ESLURM_NODES                    esnoded          the nodes it serves: `node1`, or `cn 2048 512`: those 512 of the
#                                                    nodes cn0001 to cn2048 that no other container serves
#   ESLURM_NODE_SIZE                esnoded          cores and MiB of each of them: `4 4096`
#
# Whatever keeps a container from its work is one line that begins with `eslurm-container:` or the daemon's name.
set -eu

CONFIG=/etc/eslurm/eslurm.toml
SECRETS=/run/secrets
# In memory, and readable by nobody else: daemons refuse what others could read, as it may be on the host.
PRIVATE=/dev/shm/eslurm
DOORS=/run/eslurm
STATE=/var/lib/eslurm
HOMES=/home
METRICS=0.0.0.0:9464
LINKS=${ESLURM_LISTEN:-0.0.0.0:6820}
EXIT_CANNOT_START=2
EXIT_FENCED=3

fail() {
    echo "eslurm-container: $*" >&2
    exit "$EXIT_CANNOT_START"
}

# password NAME OWNER: a copy of a password that only OWNER can read, in the form that libpq reads.
password() {
    [ -f "$SECRETS/$1" ] || fail "the secret $1 is missing: run scripts/secrets.sh, and give it to this service (secrets: [$1])"
    [ -s "$SECRETS/$1" ] || fail "the secret $1 is empty: remove its file, run scripts/secrets.sh, and start again"
    mkdir -p -m 700 "$PRIVATE"
    rm -f "$PRIVATE/pgpass"
    (umask 377 && sed 's/[\\:]/\\&/g; s/^/*:*:*:*:/' "$SECRETS/$1" >"$PRIVATE/pgpass")
    chown "$2" "$PRIVATE" "$PRIVATE/pgpass"
}

# certificates OWNER: copies of those for etcd that only OWNER can read.
certificates() {
    for name in etcd_ca etcd_certificate etcd_key; do
        [ -s "$SECRETS/$name" ] || fail "the secret $name is missing: run scripts/secrets.sh, and give it to this service (secrets: [$name])"
        mkdir -p -m 700 "$PRIVATE"
        rm -f "$PRIVATE/$name"
        (umask 377 && cat "$SECRETS/$name" >"$PRIVATE/$name")
        chown "$1" "$PRIVATE" "$PRIVATE/$name"
    done
}

# as_eslurm COMMAND ...: in the place of this script, as a user who owns nothing else.
as_eslurm() {
    exec setpriv --reuid=eslurm --regid=eslurm --clear-groups --no-new-privs -- "$@"
}

# configuration: a copy of it, as its file may belong to any user of the host, and daemons refuse one of another user.
configuration() {
    [ -f "$CONFIG" ] || fail "$CONFIG is missing: mount the cluster's configuration there"
    mkdir -p -m 700 "$PRIVATE"
    rm -f "$PRIVATE/eslurm.toml"
    cat "$CONFIG" >"$PRIVATE/eslurm.toml"
    chown eslurm "$PRIVATE" "$PRIVATE/eslurm.toml"
}

# members: draws the site's keys, and puts what makes a daemon a member into its volume, unless it is there.
members() {
    own "$DOORS"
    [ -s "$DOORS/site.key" ] || (as_eslurm eslurm keys init --state-dir "$DOORS" --cluster "$ESLURM_CLUSTER")
    # All by one process: each start of it takes as long as a short job.
    missing=$(echo "$ESLURM_MEMBERS" | while read -r role names directory owner; do
        [ -n "$role" ] && [ ! -s "$directory/membership" ] || continue
        own "$directory"
        echo "$role $names $directory"
    done)
    [ -z "$missing" ] || echo "$missing" | as_eslurm eslurm keys issue --state-dir "$DOORS" --from -
    echo "$ESLURM_MEMBERS" | while read -r role names directory owner; do
        [ -z "$role" ] || [ "$(stat -c %U "$directory/membership")" = "$owner" ] || chown -R "$owner" "$directory"
    done
}

# await FILE OWNER: until the controller that makes members has made this one, and given it to its owner.
await() {
    [ -s "$1" ] || echo "eslurm-container: $1 is missing: waiting for the controller that has ESLURM_MEMBERS" >&2
    while [ ! -s "$1" ] || [ "$(stat -c %U "$1")" != "$2" ]; do sleep 0.5; done
}

# own DIRECTORY: a fresh volume belongs to root.
own() {
    mkdir -p "$1"
    [ "$(stat -c %U "$1")" = eslurm ] || chown eslurm:eslurm "$1"
}

# A leader that was pushed out says so and ends; started again it stands by. Whatever else ends it, ends the container.
controller() {
    if ! grep -q "^\[federation\]" "$CONFIG" || grep -q passfile= "$CONFIG"; then password postgres_password eslurm; fi
    if grep -q "^\[federation\]" "$CONFIG"; then certificates eslurm; fi
    configuration
    own "$DOORS"
    if [ -n "${ESLURM_MEMBERS:-}" ]; then members; fi
    await "$DOORS/site.key" eslurm
    child=
    trap '[ -z "$child" ] || kill -TERM "$child"' TERM INT
    while :; do
        (as_eslurm esctld --config "$PRIVATE/eslurm.toml" --state-dir "$DOORS" --listen "$LINKS" --metrics-listen "$METRICS" "$@") &
        child=$!
        code=0
        wait "$child" || code=$?
        # A signal ends the first wait, not the daemon.
        while kill -0 "$child" 2>/dev/null; do
            code=0
            wait "$child" || code=$?
        done
        [ "$code" -eq "$EXIT_FENCED" ] || exit "$code"
        echo "eslurm-container: esctld is started again, to stand by" >&2
    done
}

# Nodes in slots: each container takes the first block of nodes that no other one serves, and keeps it for as long as it
# lives. The slot's directory holds the spool of its nodes, so they are the same nodes whoever serves them next. The lock
# is the kernel's: it is free the moment that a container is gone, however it went.
claim_slot() {
    slots=$(($2 / $3))
    told=
    while :; do
        slot=0
        while [ "$slot" -lt "$slots" ]; do
            mkdir -p "$STATE/slot$slot"
            exec 9>"$STATE/slot$slot.lock"
            if flock --nonblock 9; then
                home=$STATE/slot$slot
                nodes=$(printf '%s[%04d-%04d]' "$1" $((slot * $3 + 1)) $((slot * $3 + $3)))
                return
            fi
            slot=$((slot + 1))
        done
        [ -n "$told" ] || echo "eslurm-container: all $slots slots of $3 nodes are served by others: waiting for one" >&2
        told=yes
        sleep 1
    done
}

agent() {
    case $ESLURM_NODES in
    *' '*)
        # shellcheck disable=SC2086  # three words
        claim_slot $ESLURM_NODES
        ;;
    *)
        nodes=$ESLURM_NODES
        home=$STATE/$nodes
        ;;
    esac
    homes
    await "$home/membership" root
    exec esnoded --cluster "$ESLURM_CLUSTER" --nodes "$nodes" --listen "$LINKS" --state-dir "$home" \
        --satellites "$ESLURM_SATELLITES" --controller "$ESLURM_CONTROLLERS" \
        --cores "${ESLURM_NODE_SIZE% *}" --memory-mib "${ESLURM_NODE_SIZE#* }" --metrics-listen "$METRICS" "$@"
}

# The shared home directories: whoever is first makes them.
homes() {
    for user in ada ben; do
        [ -d "$HOMES/$user" ] || install -d -m 700 -o "$user" -g "$user" "$HOMES/$user"
    done
}

role=${1:-}
[ -n "$role" ] || fail "say what to run: esctld, essatd, esnoded, esestd, or a command"
shift
# With --help or as a plain user there is nothing to prepare.
if [ "$(id -u)" -ne 0 ] || [ "${1:-}" = --help ]; then exec "$role" "$@"; fi
case $role in
esctld)
    controller "$@"
    ;;
essatd)
    own "$STATE"
    await "$STATE/membership" eslurm
    as_eslurm essatd --cluster "$ESLURM_CLUSTER" --name "$(hostname)" --listen "$LINKS" \
        --controllers "$ESLURM_CONTROLLERS" --state-dir "$STATE" --metrics-listen "$METRICS" "$@"
    ;;
esestd)
    # Through the controllers' sockets: a token would need TLS.
    own "$STATE"
    configuration
    as_eslurm esestd --config "$PRIVATE/eslurm.toml" --state-dir "$STATE" --metrics-listen "$METRICS" \
        --controller-socket "$DOORS/esctld.sock:$DOORS/esctld-c2.sock" "$@"
    ;;
esnoded)
    agent "$@"
    ;;
login)
    homes
    exec sleep infinity
    ;;
*) exec "$role" "$@" ;;
esac
