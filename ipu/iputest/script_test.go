package iputest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// everything is a script with every kind of step.
func everything() Script {
	return Script{
		Streams: []Stream{{Handle: "x", Type: "f16", Shape: []int64{2, 3}, Depth: 4, Speculative: true}, Out("y", "f16", 2, 3), In("none", "u8", 0)},
		Programs: []Program{
			{Index: 5, Name: "main", Steps: []Step{
				Prefetch("x", 2), Discard("x"), Wait(time.Second),
				Repeat(2, Read("x"), Repeat(3, Write("y"))), Call("copy", []string{"x"}, []string{"y"}),
			}},
			{Index: 0, Steps: []Step{Read("none"), HangUp()}},
		},
		NumIPUs: 2, Version: 21, Tiles: 8, RemoteBuffers: true, PackageHash: "abc",
	}
}

func TestScriptRoundTrip(t *testing.T) {
	exe := everything().Executable()
	require.Equal(t, ipu.FormatTest, ipu.Identify(exe))
	s, err := DecodeScript(exe)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff(everything(), s))

	p, err := s.plan()
	require.NoError(t, err)
	require.Equal(t, []ipu.StreamInfo{
		{Handle: "x", Bytes: 12, Type: "f16", Shape: []int64{2, 3}, Programs: []int{5}},
		{Handle: "y", Direction: ipu.DeviceToHost, Bytes: 12, Type: "f16", Shape: []int64{2, 3}, Programs: []int{5}},
		{Handle: "none", Type: "u8", Shape: []int64{0}, Programs: []int{0}},
	}, p.streams)
	require.Equal(t, ipu.ProgramInfo{Index: 0}, p.programs[0].ProgramInfo)
	require.Equal(t, []int{0, 1, 1, 1, 0, 1, 1, 1}, p.programs[1].transfers)
}

func TestBadScripts(t *testing.T) {
	with := func(change func(s *Script)) Script {
		s := everything()
		change(&s)
		return s
	}
	steps := func(steps ...Step) Script {
		return with(func(s *Script) { s.Programs = []Program{{Steps: steps}} })
	}
	deep := Read("x")
	for range 70 {
		deep = Repeat(1, deep)
	}
	tests := map[string]Script{
		`unknown type "f31"`:                      with(func(s *Script) { s.Streams[0].Type = "f31" }),
		"bad shape [-1]":                          with(func(s *Script) { s.Streams[0].Shape = []int64{-1} }),
		"bad shape [65536 65536 65536":            with(func(s *Script) { s.Streams[0].Shape = []int64{1 << 16, 1 << 16, 1 << 16, 1 << 16, 0} }),
		"more than 1073741824 bytes":              with(func(s *Script) { s.Streams[0].Shape, s.Streams[1].Shape = []int64{1 << 28}, []int64{1<<28 + 1} }),
		`two streams are called "x"`:              with(func(s *Script) { s.Streams[1].Handle = "x" }),
		"depth 1025":                              with(func(s *Script) { s.Streams[0].Depth = 1025 }),
		"it needs -1 IPUs":                        with(func(s *Script) { s.NumIPUs = -1 }),
		"program -5: the index is negative":       with(func(s *Script) { s.Programs[0].Index = -5 }),
		"two programs have the index 0":           with(func(s *Script) { s.Programs[0].Index = 0 }),
		`unknown step "jump"`:                     steps(Step{Do: "jump"}),
		`program 0: read: there is no stream "z"`: steps(Read("z")),
		`call: there is no stream "z"`:            steps(Call("copy", []string{"x"}, []string{"z"})),
		`read: stream "y" goes the other way`:     steps(Read("y")),
		`write: stream "x" goes the other way`:    steps(Write("x")),
		`prefetch: stream "y" goes`:               steps(Prefetch("y", 1)),
		"repeat: count -1":                        steps(Repeat(-1)),
		"prefetch: count 2000":                    steps(Prefetch("x", 2000)),
		"wait: it takes -1s":                      steps(Wait(-time.Second)),
		"nested more than 64 deep":                steps(deep),
		"more than 1048576 transfers":             steps(Repeat(1<<20, Read("x"), Read("x"))),
		"program 0: it moves more than":           steps(Repeat(1<<20, Read("x")), Read("x")),
		"its programs move more than": with(func(s *Script) {
			s.Programs = []Program{{Index: 0, Steps: []Step{Repeat(1<<20, Read("x"))}}, {Index: 1, Steps: []Step{Read("x")}}}
		}),
	}
	for want, s := range tests {
		_, err := s.Encode()
		require.ErrorIs(t, err, ErrScript, want)
		require.ErrorContains(t, err, want)
		require.Panics(t, func() { s.Executable() })
	}
	for bytes, want := range map[string]string{
		"":                       `does not begin with "IPUTEST1"`,
		"IPUTEST1":               "EOF",
		"IPUTEST1{}{}":           "something follows it",
		`IPUTEST1{"sterams":[]}`: "unknown field",
		`IPUTEST1{"programs":[{"index":0,"steps":[{"do":"fly"}]}]}`: `unknown step "fly"`,
	} {
		_, err := DecodeScript([]byte(bytes))
		require.ErrorIs(t, err, ErrScript, want)
		require.ErrorContains(t, err, want)
		_, err = New(Config{}).NewEngine(ipu.EngineConfig{Executable: []byte(bytes)})
		require.Error(t, err)
	}
}

func FuzzDecodeScript(f *testing.F) {
	f.Add(everything().Executable())
	f.Add(SuiteScript().Executable())
	f.Add([]byte(`IPUTEST1{"streams":[{"handle":"x","type":"u8","shape":[9,9]}],"programs":[{"index":1,"steps":[{"do":"repeat","count":5,"steps":[{"do":"read","stream":"x"}]}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeScript(b)
		if err != nil {
			return
		}
		again, err := DecodeScript(s.Executable())
		if err != nil {
			t.Fatal(err)
		}
		if a, b := fmt.Sprintf("%+v", s), fmt.Sprintf("%+v", again); a != b && !strings.Contains(a, "\ufffd") {
			t.Fatalf("%s\n%s", a, b)
		}
	})
}
