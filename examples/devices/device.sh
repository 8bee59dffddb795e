#!/usr/bin/env bash
# A device in bash and curl: messages are lines (docs/devices.md).
#
#     TIDEGATE_KEY=a-key-for-devices ./device.sh http://127.0.0.1:8470 meters sh-1
#
# What the device says goes into a pipe with a name, which curl sends on as the request's body; what it is asked
# comes out of curl. curl waits for the pipe and looks at the network only when it has read something, so an empty
# line, which the server ignores, goes in every TICK_S seconds: a request waits that long for its answer.
# (`curl -T .` would not wait at all, but keeps a core busy in the versions before 8.8.)
set -uo pipefail

if [ $# != 3 ] || [ -z "${TIDEGATE_KEY:-}" ]; then
  echo "usage: TIDEGATE_KEY=KEY $0 SERVER APPLICATION DEVICE" >&2
  exit 2
fi
server=$1 application=$2 device=$3
EVENT_S=5 TICK_S=0.2 PAUSE_S_MAX=30

folder=$(mktemp -d)
said=$folder/said
mkfifo "$said"
# The key is not among curl's words, where everyone on this machine could read them.
(umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$TIDEGATE_KEY" >"$folder/key")
curl=''

end() {
  [ -z "$curl" ] || { echo D >&3; sleep "$TICK_S"; kill "$curl"; } 2>/dev/null
  rm -rf "$folder"
}
trap end EXIT
trap 'exit 0' INT TERM

temperature() { echo "{\"celsius\":$((20 + RANDOM % 3)).$((RANDOM % 10))}"; }

# What the device answers to a request; a return other than 0 declines it.
answer() {
  case $1 in
    temperature) temperature ;;
    fail) echo 'the sensor is broken'; return 1 ;;
    *) printf '%s\n' "$1" ;;
  esac
}

# Ticks, and events now and then, until a line comes in. Where the input ends instead, the script was killed: then curl
# must not be left behind, it would stay attached.
tell() {
  local next=$SECONDS
  while echo; do
    if ((SECONDS >= next)); then
      echo "E$(temperature)"
      next=$((SECONDS + EVENT_S))
    fi
    read -rt "$TICK_S"
    case $? in 0) return ;; 1) break ;; esac # Otherwise it was the time.
  done
  kill "$curl"
  rm -rf "$folder"
}

pause=1
while true; do
  # Open at both ends, so that nobody waits for the other end, and nobody is told of its end.
  exec 3<>"$said"
  mkfifo "$folder/heard"
  curl -sN -X POST -T - -K "$folder/key" -H 'Expect:' \
    "$server/v1/devices/attach?application=$application&device=$device&framing=lines&heartbeat_ms=10000" \
    <&3 >"$folder/heard" &
  curl=$!
  exec 4> >(tell >&3 2>/dev/null)
  code=''
  while IFS= read -r line; do
    rest=${line:1}
    case $line in
      W*)
        echo "attached $rest"
        pause=1
        ;;
      Q*)
        # In a process of its own: a slow request holds nobody up.
        { if text=$(answer "${rest:4}"); then echo "A${rest:0:4}$text"; else echo "N${rest:0:4}$text"; fi >&3; } 4>&- &
        ;;
      C*)
        echo "closed $rest"
        code=$(grep -o '"code":[0-9]*' <<<"$rest")
        ;;
      *) echo "refused $line" ;;
    esac
  done <"$folder/heard"
  echo >&4
  exec 4>&-
  kill "$curl" 2>/dev/null
  wait "$curl" 2>/dev/null
  curl=''
  # What was said to a server that is gone is not for the next one.
  exec 3>&-
  rm "$said" "$folder/heard"
  mkfifo "$said"
  [ "$code" != '"code":4224' ] || exit 3 # To attach again would take the name from the other.
  sleep "$pause.$((RANDOM % 10))"
  pause=$((2 * pause < PAUSE_S_MAX ? 2 * pause : PAUSE_S_MAX))
done
