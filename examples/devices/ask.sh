#!/usr/bin/env bash
# The application's side: asks a device and prints what it answers. docs/devices.md.
#
#     TIDEGATE_KEY=a-key-for-the-backend ./ask.sh http://127.0.0.1:8470 meters c-1 temperature
#
# Without a payload it says what is known of the device, without a device it lists those that are attached.
set -euo pipefail

if [ $# -lt 2 ] || [ -z "${TIDEGATE_KEY:-}" ]; then
  echo "usage: TIDEGATE_KEY=KEY $0 SERVER APPLICATION [DEVICE [PAYLOAD]]" >&2
  exit 2
fi
server=$1 application=$2
# The key is not among curl's words, where everyone on this machine could read them.
ask() { curl --silent --show-error --fail-with-body -K <(printf 'header = "Authorization: Bearer %s"\n' "$TIDEGATE_KEY") "$@"; }
case $# in
  2) ask "$server/v1/devices?application=$application" ;;
  3) ask "$server/v1/devices/$3?application=$application" ;;
  *) ask --data-raw "$4" "$server/v1/devices/$3/send?application=$application&timeout_ms=${TIMEOUT_MS:-10000}" ;;
esac
echo
