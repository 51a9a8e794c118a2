#!/bin/sh
# The main job from beginning to end; the argument is the popefgen binary.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
bin=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$root/generated_examples/digits"
say() { printf '\n$ %s\n' "$*"; }
say popefgen compile digits.onnx -o classifier/digits.popef --batch 1
"$bin" compile digits.onnx -o classifier/digits.popef --batch 1
say popefgen generate -m classifier/digits.popef -o classifier -p classifier --embed --serve
"$bin" generate -m classifier/digits.popef -o classifier -p classifier --embed --serve
say go run ./generated_examples/digits
cd "$root" && "${GO:-go}" run ./generated_examples/digits
