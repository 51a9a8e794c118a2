package iputest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/popefgen/popefgen/ipu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// variants are the options under which the suite must pass.
var variants = map[string][]ipu.Option{
	"default":      nil,
	"no prefetch":  {{Name: "exchange.enablePrefetch", Value: "false"}},
	"look-ahead 0": {{Name: "streamCallbacks.maxLookahead", Value: "0"}},
	"look-ahead 2": {{Name: "streamCallbacks.maxLookahead", Value: "2"}},
	"own thread":   {{Name: "streamCallbacks.multiThreadMode", Value: "dedicated"}},
}

func TestEngineSuite(t *testing.T) {
	deep := SuiteScript()
	for i := range deep.Streams {
		if !deep.Streams[i].Output {
			deep.Streams[i].Depth, deep.Streams[i].Speculative = 5, true
		}
	}
	executables := map[string][]byte{
		"script": SuiteScript().Executable(), "speculative": deep.Executable(), "portable": SuitePortable(),
	}
	for kind, exe := range executables {
		for name, options := range variants {
			t.Run(kind+"/"+name, func(t *testing.T) {
				sys := New(Config{Name: t.Name()}).Register(t)
				RunEngineSuite(t, Suite{Backend: sys, Executable: exe, Options: options})
			})
		}
	}
}
