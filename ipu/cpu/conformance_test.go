package cpu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/iputest"
)

func TestConformance(t *testing.T) {
	backend, err := ipu.Lookup(cpu.Name)
	require.NoError(t, err)
	for name, options := range map[string][]ipu.Option{
		"default": nil,
		"threads": {{Name: "threads", Value: "3"}},
		"copying": {{Name: "alias", Value: "off"}, {Name: "inplace", Value: "off"}, {Name: "prepack", Value: "off"}},
	} {
		t.Run(name, func(t *testing.T) {
			iputest.RunEngineSuite(t, iputest.Suite{Backend: backend, Executable: iputest.SuitePortable(), Options: options})
		})
	}
}
