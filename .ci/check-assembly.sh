#!/bin/sh
# Fails if the assembly of the CPU kernels is not what its generator writes.
# Writing it takes half a minute, so the hash of all that it is made of and of
# the files themselves is kept in build/assembly.hash once they were right, and
# nothing is done while that is the same.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
kernel=ipu/cpu/internal/kernel

hash() {
	files=$(git ls-files -co --exclude-standard -- $kernel | grep -v '_test\.go$' |
		while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done)
	{
		"$go" env GOVERSION
		cat .ci/check-assembly.sh
		echo "$files"
		echo "$files" | git hash-object --no-filters --stdin-paths
	} | git hash-object --stdin
}

now=$(hash)
if [ -f build/assembly.hash ] && [ "$(cat build/assembly.hash)" = "$now" ]; then
	echo "generated assembly is current (unchanged since it was last checked)"
	exit 0
fi
if ! "$go" -C $kernel/internal/asm run . -check ../..; then
	echo "generated assembly is stale: run 'make generate' and commit the result" >&2
	exit 1
fi
mkdir -p build
echo "$now" >build/assembly.hash
echo "generated assembly is current"
