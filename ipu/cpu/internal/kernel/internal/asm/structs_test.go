package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mmcloughlin/avo/build"
)

// TestOffsets resolves fields of structs whose sizes come from constants,
// types of other packages of the module and the rules of alignment.
func TestOffsets(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"go.mod":     "module example.com/m\n\ngo 1.26\n",
		"low/low.go": "package low\n\ntype Limits struct {\n\tLow, High float32\n\tOn bool\n}\n",
		"room/a.go": `package room

import (
	"math"
	"unsafe"

	"example.com/m/low"
	"example.com/other"
)

const narrow = 3

type args struct {
	x      *float32
	flag   bool
	scale  float32
	out    [narrow][4]uint16
	plane  unsafe.Pointer
	limits low.Limits
	last   byte
	far    other.Thing
	beyond int
}

type number int

func unused() float64 { return math.Pi + missing }
`,
		"room/a_arm64.go": "package room\n\ntype args struct{ last byte }\n",
		"room/a_test.go":  "package room\n\ntype args struct{ last byte }\n",
	} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := newLoader().dir(filepath.Join(root, "room"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, path string
		want       int
		err        string
	}{
		{"args", "x", 0, ""},
		{"args", "flag", 8, ""},
		{"args", "scale", 12, ""},
		{"args", "out", 16, ""},
		{"args", "plane", 40, ""},
		{"args", "limits", 48, ""},
		{"args", "limits.High", 52, ""},
		{"args", "limits.On", 56, ""},
		{"args", "last", 60, ""},
		{"args", "beyond", 0, "field beyond of args: the size of field far is not known"},
		{"args", "Scale", 0, "args has no field Scale"},
		{"args", "limits.on", 0, "args has no field limits.on"},
		{"args", "scale.x", 0, "field scale.x of args: float32 is not a struct, so it has no x"},
		{"number", "x", 0, "package room has no struct number"},
		{"gone", "x", 0, "package room has no struct gone"},
	} {
		got := 0
		err := attempt(func() { got = s.offset(s.named(c.args), c.path) })
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s.%s: %d, %v; want %d", c.args, c.path, got, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s.%s: %v, want %q", c.args, c.path, err, c.err)
		}
	}
	if _, err := newLoader().dir(filepath.Join(root, "nothing")); err == nil {
		t.Error("a directory that is not there has structs")
	}
}

// TestSources writes every function with the structs of the kernels, without
// giving it registers, which takes long: all fields are there, every function
// has a plain loop, and every plain loop a function.
func TestSources(t *testing.T) {
	unused := maps.Clone(plains)
	load := newLoader()
	for _, s := range sources {
		structs, err := load.dir(filepath.Join("../..", s.dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range []isa{avx2, avx512} {
			a := &asm{Context: build.NewContext(), isa: set, structs: structs}
			if err := attempt(func() { s.write(a) }); err != nil {
				t.Errorf("%s for %s: %v", s.name, set.name, err)
			}
			file, err := a.Result()
			if err != nil {
				t.Errorf("%s for %s: %v", s.name, set.name, err)
				continue
			}
			stubs := a.stubsOf(file)
			if _, err := declare("kernel", stubs); err != nil {
				t.Errorf("%s for %s: %v", s.name, set.name, err)
			}
			for _, s := range stubs {
				delete(unused, s.operation)
			}
		}
	}
	for name := range unused {
		t.Errorf("no function computes the plain loop %s", name)
	}
}

func TestGrouped(t *testing.T) {
	for signature, want := range map[string]string{
		"()":                                 "()",
		"(n int)":                            "(n int)",
		"(x *float32, n int) float32":        "(x *float32, n int) float32",
		"(d *int, x *int, n int, m int) int": "(d, x *int, n, m int) int",
		"(d *uint8, to int, s *uint8, from int, groups int, flip uint32)": "(d *uint8, to int, s *uint8, from, groups int, flip uint32)",
	} {
		if got := grouped(signature); got != want {
			t.Errorf("%s: %s, want %s", signature, got, want)
		}
	}
}

func TestDeclare(t *testing.T) {
	got, err := declare("room", []stub{
		{name: "addAVX2", operation: "add", signature: "(dst, x, y *float32, n int)"},
		{name: "peakAVX2", operation: "peak", signature: "(n int)"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := header + `
package room

// addAVX2 computes
//
//	for i := range n {
//		dst[i] = x[i] + y[i]
//	}
//
//go:noescape
func addAVX2(dst, x, y *float32, n int)

// peakAVX2 computes
//
//	for range n {
//		for i := range lanes * peakFMAs {
//			acc[i] = fma(zero, zero, acc[i]) // in registers
//		}
//	}
func peakAVX2(n int)
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}
	if _, err := declare("room", []stub{{name: "unknownAVX2", operation: "unknown", signature: "()"}}); err == nil || !strings.Contains(err.Error(), "unknown has no plain loop") {
		t.Errorf("a function without a plain loop: %v", err)
	}
}
