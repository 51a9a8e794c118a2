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
sdk="$(cd "$sdk" && pwd)" # cgo compiles in other folders
model="${POPLAR_MODEL:-}"
if [ -n "$model" ]; then
  if [ ! -f "$model" ] || [ ! -r "$model" ]; then
    echo "POPLAR_MODEL: $model is no file that can be read: name a PopEF file, or none" >&2
    exit 2
  fi
  model="$(realpath "$model")"
  export POPLAR_MODEL="$model"
fi
flags="${CGO_CXXFLAGS:-}"
# Go's cache knows the flags, not the SDK's files: others at the same path are another number.
export CGO_CXXFLAGS="'-I$sdk/include' -DPLR_SDK=$(cat "$sdk"/include/poplar/*.hpp | cksum | cut -d' ' -f1) $flags"
export CGO_LDFLAGS="'-L$sdk/lib' '-Wl,-rpath,$sdk/lib' ${CGO_LDFLAGS:-}"
failed=0
verdict() { # STATUS of a part
  case $1 in
  0) echo "fits" ;;
  3) echo "not tried" ;;
  *)
    echo "DIFFERS"
    failed=$((failed + 1))
    ;;
  esac
  echo
}
try() { # NAME COMMAND…
  name="$1"
  shift
  echo "## $name"
  "$@" 2>&1
  verdict $?
}
compiles() { ${CXX:-g++} -std=c++17 -Wall "-I$sdk/include" $flags -fsyntax-only "$@"; }
# What the shim calls: that is in the library, or inline in a header.
wanted='Engine::Engine Engine::load Engine::run Engine::connectStream Engine::connectStreamToCallback Engine::copyToRemoteBuffer Engine::listStreams Executable::deserialize DeviceManager::createDeviceManager DeviceManager::getDevice DeviceManager::getDevices Device::attach Device::detach IPUModel::createDevice versionString packageHash'
symbols() {
  if ! command -v nm >/dev/null; then
    echo "there is no nm, which lists symbols"
    return 3
  fi
  nm -DC --defined-only "$sdk/lib/libpoplar.so" >"$out/symbols.txt" || return 1
  sed -n 's/^[0-9a-f]* . \(poplar::.*\)/\1/p' "$out/symbols.txt" |
    grep -E '^poplar::(Engine::(Engine|load|run|stop|connectStream|connectStreamToCallback|copyToRemoteBuffer|copyFromRemoteBuffer|listStreams)|Executable::deserialize|DeviceManager::(createDeviceManager|getDevices?)|Device::(attach|detach|supportsRemoteBuffers|getId)|IPUModel::createDevice|versionString|packageHash|toString)\(' | sort -u
  echo "C++11 ABI: $(grep -c __cxx11 "$out/symbols.txt") symbols"
  for s in $wanted; do
    grep -q " poplar::$s(" "$out/symbols.txt" || echo "not among them: poplar::$s, which is inline or gone; whether it builds tells"
  done
  grep -q ' poplar::' "$out/symbols.txt"
}
# there runs a command, unless it has no device to run on.
there() {
  "$@" >"$out/part.txt" 2>&1
  ended=$?
  cat "$out/part.txt"
  if [ "$ended" != 0 ] && grep -q -e 'no device' -e 'portable executable' "$out/part.txt"; then return 3; fi
  return "$ended"
}
suite() { # PART
  "$out/suite.test" -test.v -test.timeout 5m -test.run "^TestModel\$/^$(echo "$1" | tr ' ' '_')\$" >"$out/part.txt" 2>&1
  ended=$?
  grep -v -e '^=== RUN' -e '^PASS$' "$out/part.txt"
  if [ "$ended" = 0 ] && grep -q -e '--- SKIP: TestModel/' "$out/part.txt"; then return 3; fi
  [ "$ended" = 0 ] && grep -q -e '--- PASS: TestModel/' "$out/part.txt"
}
nothing() {
  echo "$1"
  return 3
}
rm -f "$out/popefgen" "$out/suite.test" # of an earlier report
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
    try "compiles: ${part#* }" compiles -DONLY="${part%% *}" "$here/testdata/conformance.cpp"
  done
  for f in shim.cpp shim_engine.cpp; do try "compiles: $f" compiles "$here/$f"; done
  try "symbols of libpoplar" symbols
  try "builds" "$GO" build -tags poplar -o "$out/popefgen" ./cmd/popefgen
  if [ -x "$out/popefgen" ]; then
    try "devices" "$out/popefgen" devices
  else
    try "devices" nothing "popefgen did not build"
  fi
  if [ -z "$model" ]; then
    try "a model" nothing "POPLAR_MODEL names none"
  elif [ ! -x "$out/popefgen" ]; then
    try "$model" nothing "popefgen did not build"
  else
    try "inspects $model" "$out/popefgen" inspect "$model"
    try "runs $model" there "$out/popefgen" bench "$model" --backend poplar --duration 2s
    try "builds the suite" "$GO" test -c -vet=off -tags poplar -o "$out/suite.test" ./ipu/poplar
    if [ -x "$out/suite.test" ]; then
      "$out/suite.test" -test.v -test.run '^TestModelParts$' | sed -n 's/.* part: //p' >"$out/parts.txt"
      while read -r part; do
        try "model: $part" suite "$part" </dev/null
      done <"$out/parts.txt"
    else
      try "model" nothing "the suite did not build"
    fi
  fi
  echo
  echo "$failed parts differ"
} >"$out/report.txt"
cat "$out/report.txt"
