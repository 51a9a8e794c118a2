#!/bin/sh
# Fails if a generated file of onnx/build is not what its generator makes of the table of operators.
set -eu
cd "$(dirname "$0")/.."
have=$(mktemp -d)
trap 'rm -rf "$have"' EXIT
"${GO:-go}" run ./onnx/build/internal/gen -o "$have"
for file in onnx/build/gen_*.go; do
	[ -e "$have/$(basename "$file")" ] || { echo "$file: its generator makes no such file: delete it" >&2; exit 1; }
done
for file in "$have"/*.go; do
	if ! diff -u "onnx/build/$(basename "$file")" "$file"; then
		echo "the Builder's methods are stale: run 'go generate ./onnx/build' and commit the result" >&2
		exit 1
	fi
done
