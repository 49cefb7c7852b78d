#!/bin/sh
# What the sanitizers found in programs that tests started and whose end nobody looks at.
# usage: sanitizer_reports.sh clear|check FOLDER
set -eu
case "$1" in
  clear) rm -rf "$2" && mkdir -p "$2" && chmod 1777 "$2" ;;
  check)
    for report in "$2"/*; do
      [ -e "$report" ] || continue
      head -n 80 "$report"
      failed=1
    done
    exit "${failed:-0}" ;;
esac
