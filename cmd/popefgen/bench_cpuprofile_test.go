package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// profiled is what of a profile's samples a test looks at: how many have each
// label, as "operator=Conv".
func profiled(t *testing.T, path string) map[string]int {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	// https://github.com/google/pprof/blob/main/proto/profile.proto
	const profileSample, profileStrings, sampleLabel, labelKey, labelText = 2, 6, 3, 1, 2
	var text []string
	var samples [][]byte
	wireFields(t, data, func(n protowire.Number, value uint64, b []byte) {
		switch n {
		case profileSample:
			samples = append(samples, b)
		case profileStrings:
			text = append(text, string(b))
		}
	})
	counts := map[string]int{}
	for _, s := range samples {
		wireFields(t, s, func(n protowire.Number, _ uint64, b []byte) {
			if n != sampleLabel {
				return
			}
			var key, value uint64
			wireFields(t, b, func(n protowire.Number, v uint64, _ []byte) {
				switch n {
				case labelKey:
					key = v
				case labelText:
					value = v
				}
			})
			counts[text[key]+"="+text[value]]++
		})
	}
	return counts
}

// wireFields calls f with every field of a message of protobuf.
func wireFields(t *testing.T, b []byte, f func(n protowire.Number, value uint64, bytes []byte)) {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		require.NoError(t, protowire.ParseError(size))
		b = b[size:]
		var value uint64
		var bytes []byte
		switch typ {
		case protowire.VarintType:
			value, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, typ, b)
		}
		require.NoError(t, protowire.ParseError(size))
		b = b[size:]
		f(n, value, bytes)
	}
}

// TestBenchCPUProfile profiles a model and finds its operators and nodes in the
// profile's labels; an option that turns them off leaves none.
func TestBenchCPUProfile(t *testing.T) {
	if testing.Short() {
		t.Skip("measures for a second")
	}
	model := filepath.Join("..", "..", "generated_examples", "digits", "digits.onnx")
	for _, labels := range []string{"", "off"} {
		path := filepath.Join(t.TempDir(), "cpu.prof")
		args := []string{"bench", model, "--batch", "1", "--threads", "1", "--duration", "500ms", "--cpuprofile", path}
		if labels != "" {
			args = append(args, "--engine-option", "labels="+labels)
		}
		var out, errOut bytes.Buffer
		require.Equal(t, 0, Run(context.Background(), args, strings.NewReader(""), &out, &errOut), "%s", &errOut)
		require.Contains(t, errOut.String(), "go tool pprof -tags")
		counts := profiled(t, path)
		if labels == "off" {
			require.Empty(t, counts)
			continue
		}
		require.Positive(t, counts["operator=Conv"]+counts["operator=NCHWcConv"], "%v", counts)
		require.Positive(t, counts["model=digits.onnx"], "%v", counts)
		nodes := 0
		for label := range counts {
			if strings.HasPrefix(label, "node=") {
				nodes++
			}
		}
		require.Greater(t, nodes, 1, "%v", counts)
	}
	var out, errOut bytes.Buffer
	require.Equal(t, 2, Run(context.Background(), []string{"bench", model, "--batch", "1", "--duration", "1ms", "--cpuprofile", t.TempDir() + "/nowhere/cpu.prof"},
		strings.NewReader(""), &out, &errOut))
	require.Contains(t, errOut.String(), "--cpuprofile")
}
