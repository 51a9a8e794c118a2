package main

import (
	"bytes"
	"io"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestError measures the model through its generated runner on patients that
// it was not trained on; always guessing the median is off by 65.1.
func TestError(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run(&b, nil))
	m := regexp.MustCompile(`88 held-out patients in all: off by ([0-9.]+) on average`).FindStringSubmatch(b.String())
	require.NotNil(t, m, b.String())
	off, err := strconv.ParseFloat(m[1], 64)
	require.NoError(t, err)
	require.Less(t, off, 50.0)
}

func TestArguments(t *testing.T) {
	require.NoError(t, run(io.Discard, []string{"59", "2", "32.1", "101", "157", "93.2", "38", "4", "4.8598", "87"}))
	require.ErrorContains(t, run(io.Discard, []string{"59"}), "found 1 numbers, want 10")
	require.ErrorContains(t, run(io.Discard, []string{"59", "3", "32.1", "101", "157", "93.2", "38", "4", "4.8598", "87"}), "sex is 3")
	require.ErrorContains(t, run(io.Discard, []string{"x"}), "number 1")
}
