#!/usr/bin/env bash
# What the resources of main.tf do on this machine: one subcommand each. Settings come in the environment.
#
# Processes are known by an entry of their environment, never by a name: so none but those started here is ever told to end, and
# each is found also when its mark was lost.
set -euo pipefail
umask 077

# In the environment of `start-*`: BINARY, FOLDER, REGION, PORT, REPLICAS, MODEL, OTHERS, CONFIG, START, WAIT_SECONDS.
readonly COMMAND="${1:?which subcommand?}"
readonly HOME_FOLDER="${FOLDER:-}/regions/${REGION:-}"
# A node has `drain_ms` (node.toml.tftpl) to finish its requests.
readonly STOP_SECONDS=20

main() {
  case "$COMMAND" in
    make-certificates | make-region | start-replicas | start-node | settle | remove-region | remove-folder)
      "${COMMAND//-/_}"
      ;;
    *) fail "there is no subcommand $COMMAND" ;;
  esac
}

make_certificates() {
  for tool in curl flock setsid; do
    command -v "$tool" > /dev/null || fail "$tool is missing (Debian: apt-get install curl util-linux)"
  done
  mkdir -p "$FOLDER"
  [[ -e $FOLDER/certs/ca.pem ]] || "$BINARY" certs init --cluster local --dir "$FOLDER/certs"
}

make_region() {
  mkdir -p "$HOME_FOLDER"
  [[ -e $HOME_FOLDER/$REGION.$REGION.pem ]] ||
    "$BINARY" certs node --dir "$FOLDER/certs" --out "$HOME_FOLDER" --region "$REGION" --node "$REGION"
}

start_replicas() {
  take_turn replicas
  stop replicas
  launch replicas "$BINARY" emulate --listen "127.0.0.1:$((PORT + 10))" --replicas "$REPLICAS" --model "$MODEL" --time-scale 0.2
  local last=$((PORT + 10 + REPLICAS - 1))
  wait_for replicas "ready" answers "http://127.0.0.1:$last/health"
}

start_node() {
  take_turn node
  stop node
  printf '%s\n' "$CONFIG" > "$HOME_FOLDER/node.toml"
  ask_to_join
  local join=()
  [[ ! -e $HOME_FOLDER/join.token ]] || join=(SPILLWAY__CLUSTER__JOIN_TOKEN_FILE="$HOME_FOLDER/join.token")
  launch node env "${join[@]}" "$BINARY" run --config node.toml
  wait_for node "ready" answers "http://127.0.0.1:$((PORT + 1))/readyz"
  # Nobody forms or follows a cluster alone: the first nodes of it are waited for together, by `settle`.
  if is_formed "$((PORT + 1))" && others_are_enough; then
    wait_for node "back in its cluster" is_in_place "$((PORT + 1))" "$REGION"
  fi
}

# Waits until the cluster has every node in MEMBERS, and removes those that are not there.
settle() {
  local member
  for member in $MEMBERS; do
    wait_for "" "$member is a member" is_in_place "${member#*=}" "${member%=*}"
  done
  wait_for "" "free of nodes that went" only_members_are_left "${member#*=}"
  # Members need none.
  rm -f "$FOLDER"/regions/*/join.token
}

remove_region() {
  stop node
  stop replicas
  rm -rf "$HOME_FOLDER"
}

remove_folder() {
  rm -rf "$FOLDER/certs"
  rm -f "$FOLDER/turn.lock"
  # What others put there stays, and the folder with it.
  rmdir --ignore-fail-on-non-empty "$FOLDER/regions" "$FOLDER" 2> /dev/null || true
}

# --- processes -------------------------------------------------------------------------------------------------------

# Prints the ids of the running processes of a kind (node, replicas) in this region's folder.
running() {
  local entry="SPILLWAY_LOCAL_PROCESS=$HOME_FOLDER/$1" file
  for file in /proc/[0-9]*/environ; do
    # Processes of others can't be read, and some end meanwhile.
    if grep -qzxF -- "$entry" "$file" 2> /dev/null; then
      file="${file%/environ}"
      echo "${file##*/}"
    fi
  done
}

is_gone() {
  [[ -z $(running "$1") ]]
}

# Looks twice: an environment is empty for a moment while a process becomes another program.
is_gone_for_good() {
  is_gone "$1" && sleep 0.2 && is_gone "$1"
}

# Starts a process that outlives Terraform. Its mark is written before it becomes that process, so none is without.
launch() {
  local kind="$1" token
  shift
  token="$(< /proc/sys/kernel/random/uuid)"
  # The lock of `take_turn` is not inherited: it would be held as long as the process lives.
  (
    cd "$HOME_FOLDER"
    # shellcheck disable=SC2016 # the inner shell expands its own arguments
    exec env -i PATH="$PATH" SPILLWAY_LOCAL_PROCESS="$HOME_FOLDER/$kind" SPILLWAY_LOCAL_TOKEN="$token" \
      setsid nohup bash -c 'echo "$1 $$ $SPILLWAY_LOCAL_TOKEN" > "$2.new" && mv "$2.new" "$2.mark" && shift 2 && exec "$@"' \
      "$kind" "$START" "$kind" "$@"
  ) < /dev/null >> "$HOME_FOLDER/$kind.log" 2>&1 9>&- &
  poll 10 grep -qsF "$token" "$HOME_FOLDER/$kind.mark" || fail_with_log "$kind" "did not start"
}

# Ends the processes of a kind: asks them, and kills at the deadline what is left.
stop() {
  local kind="$1" id
  for id in $(running "$kind"); do
    kill -TERM "$id" 2> /dev/null || true
  done
  poll "$STOP_SECONDS" is_gone "$kind" && return
  for id in $(running "$kind"); do
    echo "$kind in $HOME_FOLDER: $id did not end within $STOP_SECONDS s, killed" >&2
    kill -KILL "$id" 2> /dev/null || true
  done
  poll "$STOP_SECONDS" is_gone "$kind" || fail "$kind in $HOME_FOLDER can't be ended"
}

# Lets running processes be replaced one at a time: what runs in this region goes down only while the rest of the cluster
# is complete. What is dead is started at once. The lock is held until this script ends.
take_turn() {
  ! is_gone "$1" || return 0
  exec 9> "$FOLDER/turn.lock"
  flock --wait "$((WAIT_SECONDS * 20))" 9 || fail "other regions did not get done"
  if is_formed "$((PORT + 1))"; then
    poll "$WAIT_SECONDS" others_are_in_place || echo "$REGION: goes on although other regions are away" >&2
  fi
}

# --- the cluster -----------------------------------------------------------------------------------------------------

# True when the node at this admin port is or was in a cluster.
is_formed() {
  [[ $(status_of "$1") == *'"cluster":"'* ]]
}

# True when the node at this admin port follows a leader, has all that is agreed on, and this name is a member.
is_in_place() {
  local status
  status="$(status_of "$1")" || return 1
  [[ $status == *'"leader":{'* && $status == *"\"name\":\"$2\""* ]] || return 1
  [[ $(field applied_index "$status") == "$(field committed_index "$status")" ]]
}

others_are_in_place() {
  local other
  for other in $OTHERS; do
    is_in_place "${other#*=}" "${other%=*}" || return 1
  done
}

# True when the other regions and this one are a majority.
others_are_enough() {
  local other all count=0
  all=$(wc -w <<< "$OTHERS $REGION")
  for other in $OTHERS; do
    ! answers "http://127.0.0.1:${other#*=}/readyz" || count=$((count + 1))
  done
  ((2 * (count + 1) > all))
}

# Gets a token where a cluster is there already and this node is none of it: only who begins a cluster needs none.
ask_to_join() {
  [[ ! -e $HOME_FOLDER/data || -e $HOME_FOLDER/join.token ]] || return 0
  local other status admin
  for other in $OTHERS; do
    status="$(status_of "${other#*=}")" || continue
    [[ $status == *'"leader":{'* ]] || continue
    admin="http://127.0.0.1:${other#*=}"
    # A wiped disk is another node: the old one has to go first.
    [[ -e $HOME_FOLDER/data || $status != *"\"name\":\"$REGION\""* ]] || "$BINARY" remove node "$REGION" --admin "$admin"
    "$BINARY" join-token create --region "$REGION" --create --operators --admin "$admin" > "$HOME_FOLDER/join.token"
    return
  done
}

# Removes nodes that are not in MEMBERS; true once there are none.
only_members_are_left() {
  local admin="$1" name is_clean=true
  for name in $(members "$admin"); do
    [[ " $MEMBERS " != *" $name="* ]] || continue
    is_clean=false
    # Removed already, where this node has not heard of it yet.
    "$BINARY" remove node "$name" --admin "http://127.0.0.1:$admin" > /dev/null 2>&1 || true
  done
  $is_clean
}

# Prints the names of all members that the node at this admin port knows.
members() {
  status_of "$1" | grep -o '"name":"[a-z0-9-]*"' | cut -d '"' -f 4 | sort -u
}

status_of() {
  curl --silent --fail --max-time 5 "http://127.0.0.1:$1/v1/status"
}

# Prints a number of a JSON object.
field() {
  grep -o "\"$1\":[0-9]*" <<< "$2" | cut -d : -f 2
}

# --- waiting ---------------------------------------------------------------------------------------------------------

answers() {
  curl --silent --fail --max-time 2 --output /dev/null "$1"
}

# Repeats a command until it succeeds; false at the deadline.
poll() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    ((SECONDS < deadline)) || return 1
    sleep 0.1
  done
}

# Waits for a command to succeed. Fails at the deadline, or when the process of that kind has ended.
wait_for() {
  local kind="$1" what="$2" deadline=$((SECONDS + WAIT_SECONDS))
  shift 2
  until "$@"; do
    [[ -z $kind ]] || ! is_gone_for_good "$kind" || fail_with_log "$kind" "ended, not $what"
    ((SECONDS < deadline)) || fail_with_log "$kind" "not $what within $WAIT_SECONDS s"
    sleep 0.1
  done
}

fail_with_log() {
  [[ -z $1 ]] || tail -n 20 "$HOME_FOLDER/$1.log" >&2
  fail "${REGION:-cluster} ${1:-}: $2"
}

fail() {
  echo "$*" >&2
  exit 1
}

main
