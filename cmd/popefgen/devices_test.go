package main

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// silentBackend is a back end whose driver does not answer.
type silentBackend struct{ ipu.Backend }

func (silentBackend) Name() string { return "silent" }

func (silentBackend) Devices(context.Context) ([]ipu.Device, error) {
	return nil, errors.New("no answer")
}

// TestDevicesOfOthers lists the devices of the back ends that answer, where one does not.
func TestDevicesOfOthers(t *testing.T) {
	b := silentBackend{}
	ipu.Register(b)
	defer ipu.Unregister(b)
	code, out, errOut := say(t, "devices")
	require.NotZero(t, code)
	require.Contains(t, out, "cpu ")
	require.Contains(t, errOut, "devices of back end silent: no answer")
}
