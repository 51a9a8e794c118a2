#!/bin/sh
# What differs between Poplar's SDK and what this back end assumes of it, as one report to send back.
#   GO=go sh ipu/poplar/report.sh FOLDER
# POPLAR_SDK_ENABLED names the SDK (its enable.sh sets it). POPLAR_MODEL=FILE.popef, a model that was compiled for this
# machine's IPUs, is run on one as well.
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
  if "$@" 2>&1; then echo "fits"; else
    echo "DIFFERS"
    failed=$((failed + 1))
  fi
  echo
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
      try "inspects $POPLAR_MODEL" "$out/popefgen" inspect "$POPLAR_MODEL"
      try "runs $POPLAR_MODEL" env POPEFGEN_BACKEND=poplar "$out/popefgen" bench "$POPLAR_MODEL" --duration 2s
    else
      echo "no model was run: POPLAR_MODEL names none"
    fi
  fi
  echo
  echo "$failed parts differ"
} >"$out/report.txt"
cat "$out/report.txt"
