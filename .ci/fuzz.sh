#!/bin/sh
# Runs every fuzz target of every module for $FUZZTIME each.
set -eu
cd "$(dirname "$0")/.."
go="${GO:-go}"
grep -rlE '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		echo "== $(dirname "$file") $target"
		# In its folder, which may be of a module of its own.
		"$go" -C "$(dirname "$file")" test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" -fuzzminimizetime 10x . </dev/null
	done
done
