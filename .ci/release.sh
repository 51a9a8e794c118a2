#!/bin/sh
# Makes the tags of the modules below the main one, whose tag is VERSION; without VERSION it tries that on what is committed and leaves nothing.
# On the branch these modules replace the main one by its folder, so that a commit of all is one commit and builds without a network; the go
# command installs no command of such a module, and users of its packages could not resolve the version that stands there. So a release is a
# commit beside the branch, in which they require the main module's version and replace nothing. The command is installed from the tags, as its
# users do, before anything is pushed.
#   GO=go sh .ci/release.sh [VERSION]
set -eu
GO="${GO:-go}"
module=github.com/popefgen/popefgen
modules="serve/grpc serve/nats serve/otel"
top="$(git rev-parse --show-toplevel)"
version="${1:-}"
dir="$(mktemp -d)"
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
tried="${version:-v0.999.0}"
if [ -n "$version" ]; then git rev-parse -q --verify "refs/tags/$version" >/dev/null || { echo "release: there is no tag $version: git tag $version" >&2; exit 1; }; fi

git clone -q "$top" "$dir/repo"
cd "$dir/repo"
if [ -z "$version" ]; then git tag "$tried"; fi
git checkout -q --detach "$tried"

# The module is fetched from here, all others from the cache or the proxy; what is tried stays out of the cache.
export GOPROXY="file://$($GO env GOMODCACHE)/cache/download,$($GO env GOPROXY)"
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$dir/repo.insteadOf" GIT_CONFIG_VALUE_0="https://$module"
export GOPRIVATE="$module" GOSUMDB=off GOWORK=off GOMODCACHE="$dir/cache" GOFLAGS=-mod=mod
for m in $modules; do
  (cd "$m" && $GO mod edit -dropreplace="$module" -require="$module@$tried" && $GO build ./...)
done
git -c user.name="${GIT_AUTHOR_NAME:-release}" -c user.email="${GIT_AUTHOR_EMAIL:-release@localhost}" commit -q -a -m "Release $tried: the modules require the main one's version"
for m in $modules; do git tag "$m/$tried"; done
mkdir "$dir/bin"
(cd "$dir" && GOBIN="$dir/bin" GOFLAGS= $GO install "$module/serve/grpc/cmd/popefgen-serve@$tried")
"$dir/bin/popefgen-serve" --help >/dev/null
if [ -z "$version" ]; then
  echo "release: $module/serve/grpc/cmd/popefgen-serve@VERSION can be installed from what is committed"
  exit 0
fi
cd "$top"
for m in $modules; do git fetch -q "$dir/repo" "refs/tags/$m/$version:refs/tags/$m/$version"; done
echo "release: git push origin $version$(for m in $modules; do printf ' %s' "$m/$version"; done)"
