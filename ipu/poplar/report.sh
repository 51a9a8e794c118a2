#!/bin/sh
# What differs between Poplar's SDK and what this back end assumes of it, as one report to send back.
#   GO=go sh ipu/poplar/report.sh FOLDER
# POPLAR_SDK_ENABLED names the SDK (its enable.sh sets it). POPLAR_MODEL=FILE.popef, a model that was compiled for this
# machine's IPUs, is tried on one as well (suite_test.go): each part in a process of its own, so that the report has the others
# whatever becomes of it.
set -u
out="$1"
GO="${GO:-go}"
here="$(cd "$(dirname "$0")" && pwd)"
sdk="${POPLAR_SDK_ENABLED:-}"
if [ -z "$sdk" ] || [ ! -d "$sdk/include/poplar" ]; then
  echo "there is no Poplar SDK: source its enable.sh, which sets POPLAR_SDK_ENABLED to a folder with include/poplar" >&2
  exit 2
fi
cxx="${CXX:-g++} -std=c++17 -Wall -I$sdk/include ${CGO_CXXFLAGS:-}"
export CGO_CXXFLAGS="-I$sdk/include ${CGO_CXXFLAGS:-}"
export CGO_LDFLAGS="-L$sdk/lib -Wl,-rpath,$sdk/lib ${CGO_LDFLAGS:-}"
failed=0
try() { # NAME COMMAND…
  name="$1"
  shift
  echo "## $name"
  "$@" 2>&1
  case $? in
  0) echo "fits" ;;
  3) echo "not tried" ;;
  *)
    echo "DIFFERS"
    failed=$((failed + 1))
    ;;
  esac
  echo
}
suite() { # PART
  "$out/suite.test" -test.v -test.timeout 5m -test.run "^TestModel\$/^$(echo "$1" | tr ' ' '_')\$" >"$out/part.txt" 2>&1
  ended=$?
  grep -v -e '^=== RUN' -e '^PASS$' "$out/part.txt"
  if [ "$ended" = 0 ] && grep -q -e '--- SKIP: TestModel/' "$out/part.txt"; then return 3; fi
  [ "$ended" = 0 ] && grep -q -e '--- PASS: TestModel/' "$out/part.txt"
}
{
  echo "# Poplar back end: report"
  echo
  uname -srm
  ${CXX:-g++} --version | head -1
  "$GO" version
  basename "$sdk"
  git -C "$here" rev-parse HEAD 2>/dev/null
  echo
  for part in "1 errors" "2 ownership" "3 devices" "4 executables and engines" "5 streams" "6 options and versions"; do
    try "compiles: ${part#* }" $cxx -DONLY="${part%% *}" -fsyntax-only "$here/testdata/conformance.cpp"
  done
  for f in shim.cpp shim_engine.cpp; do try "compiles: $f" $cxx -fsyntax-only "$here/$f"; done
  echo "## symbols of libpoplar"
  nm -DC --defined-only "$sdk/lib/libpoplar.so" 2>/dev/null |
    grep -E 'poplar::(Engine::(Engine|load|run|stop|connectStream|connectStreamToCallback|copyToRemoteBuffer|copyFromRemoteBuffer|listStreams)|Executable::deserialize|DeviceManager::(createDeviceManager|getDevices?)|Device::(attach|detach|supportsRemoteBuffers|getId)|IPUModel::createDevice|versionString|packageHash|toString)\(' | sed 's/^[0-9a-f]* . //' | sort -u
  echo "C++11 ABI: $(nm -DC "$sdk/lib/libpoplar.so" 2>/dev/null | grep -c __cxx11) symbols"
  echo
  try "builds" "$GO" build -tags poplar -o "$out/popefgen" ./cmd/popefgen
  if [ -x "$out/popefgen" ]; then
    try "devices" "$out/popefgen" devices
    if [ -n "${POPLAR_MODEL:-}" ]; then
      export POPLAR_MODEL="$(realpath "$POPLAR_MODEL")"
      try "inspects $POPLAR_MODEL" "$out/popefgen" inspect "$POPLAR_MODEL"
      try "runs $POPLAR_MODEL" "$out/popefgen" bench "$POPLAR_MODEL" --backend poplar --duration 2s
      try "builds the suite" "$GO" test -c -vet=off -tags poplar -o "$out/suite.test" ./ipu/poplar
      "$out/suite.test" -test.v -test.run '^TestModelParts$' | sed -n 's/.* part: //p' >"$out/parts.txt"
      while read -r part; do
        try "model: $part" suite "$part" </dev/null
      done <"$out/parts.txt"
    else
      echo "no model was run: POPLAR_MODEL names none"
    fi
  fi
  echo
  echo "$failed parts differ"
} >"$out/report.txt"
cat "$out/report.txt"
