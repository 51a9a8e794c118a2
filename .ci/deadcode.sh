#!/bin/sh
# Functions that nothing reaches, in the main module and in those that import
# it: what one of them alone calls is not dead. Prints them and fails if there
# are any.
#   GO=go sh .ci/deadcode.sh MODULE...
set -eu
GO="${GO:-go}"
module=github.com/popefgen/popefgen
tool="$("$GO" tool -n deadcode)"
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
line='{{range .Funcs}}{{println $.Path .Name}}{{end}}'
"$tool" -test -filter "^$module" -f "$line" ./... | sed '/^$/d' | sort -u >"$dir/dead"
for m in "$@"; do
  if [ ! -s "$dir/dead" ]; then exit 0; fi
  # A function is alive where its package is linked and does not count as dead.
  (cd "$m" && "$GO" list -deps -test -f '{{.ImportPath}}' ./... | sed 's/ .*//') | sort -u >"$dir/linked"
  (cd "$m" && "$tool" -test -filter "^$module" -f "$line" ./...) | sed '/^$/d' | sort -u >"$dir/there"
  awk -v linked="$dir/linked" -v there="$dir/there" '
    BEGIN { while ((getline p < linked) > 0) l[p] = 1; while ((getline f < there) > 0) t[f] = 1 }
    !($1 in l) || ($0 in t)' "$dir/dead" >"$dir/left"
  mv "$dir/left" "$dir/dead"
done
if [ -s "$dir/dead" ]; then
  echo "nothing reaches these functions:"
  cat "$dir/dead"
  exit 1
fi
