package rt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// TestBackendVariable has the environment choose the back end, and an option override it.
func TestBackendVariable(t *testing.T) {
	for _, name := range []string{"first", "second"} {
		newSystem(iputest.Config{Name: name, Devices: make([]ipu.DeviceInfo, 1)}).Register(t)
	}
	m := exampleModel()
	open := func(options ...modelrt.SessionOption) (string, error) {
		s, err := modelrt.NewSession(t.Context(), m, options...)
		if err != nil {
			return "", err
		}
		defer func() { require.NoError(t, s.Close()) }()
		return s.Device().Info().Backend, nil
	}
	t.Setenv(rt.BackendVariable, "")
	got, err := open()
	require.NoError(t, err)
	require.Equal(t, "cpu", got)
	t.Setenv(rt.BackendVariable, "first")
	got, err = open()
	require.NoError(t, err)
	require.Equal(t, "first", got)
	got, err = open(rt.WithBackend("second"))
	require.NoError(t, err)
	require.Equal(t, "second", got)
	t.Setenv(rt.BackendVariable, "none")
	_, err = open()
	require.ErrorIs(t, err, ipu.ErrUnknownBackend)
	require.ErrorContains(t, err, `"none"`)
}
