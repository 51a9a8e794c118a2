package manifests

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files of deploy/ again")

// TestDeployIsCurrent compares the manifests of deploy/ with what Write makes.
func TestDeployIsCurrent(t *testing.T) {
	for _, platform := range Platforms {
		o := Defaults()
		o.Platform, o.Claim = platform, "models"
		if platform == "kserve" {
			o.Claim, o.StorageURI = "", "pvc://models/models"
		}
		var b bytes.Buffer
		require.NoError(t, Write(&b, o))
		path := filepath.Join("..", "..", "..", "..", "deploy", platform+".yaml")
		if *update {
			require.NoError(t, os.WriteFile(path, b.Bytes(), 0o644))
		}
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, b.String(), string(got), "%s: go test ./internal/manifests -update writes it again", path)
	}
}

// TestOptions refuses what would be a manifest that nothing accepts, or another one than was meant.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		change func(o *Options)
		err    string
	}{
		{func(o *Options) { o.Platform = "swarm" }, `platform is "swarm", expected one of kubernetes, knative, kserve`},
		{func(o *Options) { o.Name = "A\n---" }, `name is "A\n---"`},
		{func(o *Options) { o.Name = strings.Repeat("a", 41) }, "at most 40"},
		{func(o *Options) { o.Namespace = "a: b" }, `namespace is "a: b"`},
		{func(o *Options) { o.Image = "" }, `image is ""`},
		{func(o *Options) { o.Image = "a\nb" }, `image is "a\nb"`},
		{func(o *Options) { o.Claim = "../x" }, `claim is "../x"`},
		{func(o *Options) { o.StorageURI = "pvc://x" }, "only KServe fetches models"},
		{func(o *Options) { o.Platform = "kserve" }, `storage URI is "", expected where KServe finds`},
		{func(o *Options) { o.Platform, o.StorageURI, o.Claim = "kserve", "s3://b", "c" }, "KServe fetches models from the storage URI"},
		{func(o *Options) { o.CPU = "two" }, `CPU is "two"`},
		{func(o *Options) { o.Memory = "1GB" }, `memory is "1GB"`},
		{func(o *Options) { o.Replicas = 0 }, `replicas is "0 to 8", expected at least 1`},
		{func(o *Options) { o.Replicas = 9 }, `replicas is "9 to 8"`},
		{func(o *Options) { o.DrainDelay = -1 }, "drain delay"},
		{func(o *Options) { o.DrainLimit = 0 }, "drain limit"},
		{func(o *Options) { o.QueueTime = time.Microsecond }, "queue time"},
		{func(o *Options) { o.Concurrency = 0 }, "concurrency"},
	} {
		o := Defaults()
		c.change(&o)
		var b bytes.Buffer
		require.ErrorContains(t, Write(&b, o), c.err)
		require.Zero(t, b.Len())
	}
	o := Defaults()
	o.CPU, o.Memory = "x", "y"
	err := Write(&bytes.Buffer{}, o)
	require.ErrorContains(t, err, "CPU")
	require.ErrorContains(t, err, "memory", "all that is wrong is named at once")
}
