package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestReplace(t *testing.T) {
	got, err := replace([]byte("a\n"+beginMark+"\nold\n"+endMark+"\nb\n"), "| x |\n")
	require.NoError(t, err)
	require.Equal(t, "a\n"+beginMark+"\n\n| x |\n\n"+endMark+"\nb\n", string(got))
	_, err = replace([]byte("no markers"), "")
	require.ErrorContains(t, err, beginMark)
}

func TestReadings(t *testing.T) {
	out := []byte(`
| model            | median | best | p99 | median | best | p99 | ratio | other | ratio |
|------------------|-------:|-----:|----:|-------:|-----:|----:|------:|------:|------:|
| a                | 1      | 1    | 1   | 2      | 2    | 2   | 0.50  | –     | –     |
| b                | 1      | 1    | 1   | 2      | 2    | 2   | 1.05  | –     | –     |
| geometric mean   |        |      |     |        |      |     | 0.72  |       |       |

| model            | median | best | p99 | median | best | p99 | ratio | other | ratio |
| c                | 1      | 1    | 1   | 2      | 2    | 2   | 0.30  | –     | –     |
| geometric mean   |        |      |     |        |      |     | 0.30  |       |       |
`)
	want := []string{"0.72, 1.05 (`b`)", "0.30, 0.30 (`c`)"}
	if d := cmp.Diff(want, ratios(out)); d != "" {
		t.Error(d)
	}
	got := benchmarks([]byte("goos: linux\nBenchmarkPublicModels/a/threads=1-2   100   2500.5 ns/op   0 B/op\nPASS\n"))
	if d := cmp.Diff(map[string]float64{"PublicModels/a/threads=1-2": 2500.5}, got); d != "" {
		t.Error(d)
	}
}
