#!/bin/sh
# Tests of the shim and the fake without Go: plain, and with sanitizers.
#   sh ipu/poplar/check.sh FOLDER API SANITIZERS
# builds into FOLDER for API 302 or 303, with -fsanitize=SANITIZERS unless that is "none", and runs it.
set -eu
out="$1" api="$2" san="$3"
here="$(cd "$(dirname "$0")" && pwd)"
export ASAN_OPTIONS=detect_leaks=1
flags="-std=c++17 -g -O1 -Wall -Wextra -Wno-comment -Werror -DFAKE_POPLAR_API=$api -DPLR_TEST_PAUSE -I$here/internal/fakesdk"
if [ "$san" != none ]; then flags="$flags -fsanitize=$san -fno-sanitize-recover=all"; fi
mkdir -p "$out"
${CXX:-g++} $flags -Wno-unused-function -fsyntax-only "$here/testdata/conformance.cpp"
objects=""
for f in "$here"/shim.cpp "$here"/shim_engine.cpp "$here"/internal/fakesdk/poplar/*.cpp "$here"/testdata/shim_test.cpp; do
  o="$out/$(basename "$f" .cpp).$api.$san.o"
  ${CXX:-g++} $flags -c "$f" -o "$o"
  objects="$objects $o"
done
${CXX:-g++} $flags $objects -o "$out/shim_test.$api.$san" -pthread
echo "shim and fake, API $api, sanitizers: $san: $("$out/shim_test.$api.$san")"
