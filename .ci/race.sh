#!/bin/sh
# Prints the packages that are tested under the race detector: those under the
# given patterns that have tests, and where the package or its tests start a
# goroutine or a server. The others have nothing to race with, and compiling and
# linking them for the detector takes longer than their tests.
#   GO=go sh .ci/race.sh PATTERN...
set -eu
list="$("${GO:-go}" list -f '{{if or .TestGoFiles .XTestGoFiles}}{{$d := .Dir}}{{.ImportPath}}{{range .GoFiles}} {{$d}}/{{.}}{{end}}{{range .TestGoFiles}} {{$d}}/{{.}}{{end}}{{range .XTestGoFiles}} {{$d}}/{{.}}{{end}}{{end}}' "$@")"
echo "$list" |
  while read -r package files; do
    [ -n "$package" ] || continue
    # shellcheck disable=SC2086 # file names, split on purpose
    if grep -qE '^[[:space:]]*go (func|[a-zA-Z_.]+\()|"golang.org/x/sync/|\.RunParallel\(|\.Go\(|"net/http/httptest"' $files; then echo "$package"; fi
  done
