//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEngineSuite runs the suite that every engine has to pass, under each of Poplar's modes and whatever the fake does of its own accord.
func TestEngineSuite(t *testing.T) {
	for name, v := range map[string]struct {
		nasty   string
		options []ipu.Option
	}{
		"default":       {},
		"no prefetch":   {options: []ipu.Option{{Name: "exchange.enablePrefetch", Value: "false"}}},
		"look-ahead 0":  {options: []ipu.Option{{Name: "streamCallbacks.maxLookahead", Value: "0"}}},
		"dedicated":     {options: []ipu.Option{{Name: "streamCallbacks.multiThreadMode", Value: "dedicated"}}},
		"collaborative": {options: []ipu.Option{{Name: "streamCallbacks.multiThreadMode", Value: "collaborative"}}, nasty: "poison,latency=20"},
		"nasty":         {nasty: "poison,refuse,extra,discard,seed=7"},
		"forgetful":     {nasty: "silent,forget"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("FAKE_POPLAR_NASTY", v.nasty)
			iputest.RunEngineSuite(t, iputest.Suite{Backend: backend(t), Executable: iputest.SuitePortable(), Options: v.options})
		})
	}
}
