package popart

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"math"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/ipu/cpu"
)

// fingerprint hashes values whole: what they point at, the elements of maps in order, unexported fields. So no field that is new can be forgotten. Functions count by whether there is one,
// channels are not allowed, and what points at itself neither.
type fingerprint struct{ h hash.Hash }

func newFingerprint() *fingerprint { return &fingerprint{sha256.New()} }

// sum returns the hash as a text for names of files.
func (f *fingerprint) sum() string { return hex.EncodeToString(f.h.Sum(nil)) }

// add hashes values in order.
func (f *fingerprint) add(values ...any) {
	for _, v := range values {
		f.value(reflect.ValueOf(v))
	}
}

func (f *fingerprint) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	f.h.Write(b[:])
}

func (f *fingerprint) truth(b bool) {
	if b {
		f.number(1)
	} else {
		f.number(0)
	}
}

func (f *fingerprint) text(s string) {
	f.number(uint64(len(s)))
	io.WriteString(f.h, s) //nolint:errcheck // a hash never fails
}

func (f *fingerprint) value(v reflect.Value) {
	if !v.IsValid() {
		f.number(0)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		f.truth(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		f.number(math.Float64bits(v.Float()))
	case reflect.String:
		f.text(v.String())
	case reflect.Slice, reflect.Array:
		f.number(uint64(v.Len()))
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			f.h.Write(v.Bytes())
			return
		}
		for i := range v.Len() {
			f.value(v.Index(i))
		}
	case reflect.Map:
		f.number(uint64(v.Len()))
		var entries []string // by their own fingerprints, whose order is that of the keys' hashes
		for it := v.MapRange(); it.Next(); {
			one := newFingerprint()
			one.value(it.Key())
			one.value(it.Value())
			entries = append(entries, one.sum())
		}
		slices.Sort(entries)
		for _, e := range entries {
			f.text(e)
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			f.number(0)
			return
		}
		f.number(1)
		f.text(v.Elem().Type().String())
		f.value(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f.text(v.Type().Field(i).Name)
			f.value(v.Field(i))
		}
	case reflect.Func:
		f.truth(v.IsNil())
	default:
		panic(fmt.Sprintf("popart: a fingerprint of %v", v.Type()))
	}
}

// compiler identifies what compiles: the same gives the same model of the same. It is the version of this module, where that says all of it, else the program that runs; and the processor's instructions, with
// which constants are computed.
var compiler = sync.OnceValue(func() string {
	return strings.Join([]string{moduleVersion(), runtime.Version(), runtime.GOARCH, cpu.Path()}, " ")
})

// moduleVersion returns the version of this module in the program, else a hash of the program; "" if that can't be read.
var moduleVersion = sync.OnceValue(func() string {
	const path = "github.com/popefgen/popefgen"
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(slices.Clone(b.Deps), &b.Main) {
			if m.Path == path && m.Replace == nil && m.Sum != "" {
				return m.Version + " " + m.Sum
			}
		}
	}
	f := newFingerprint()
	if p, err := os.Executable(); err == nil {
		if program, err := os.Open(p); err == nil {
			defer program.Close()
			if _, err := io.Copy(f.h, program); err == nil {
				return f.sum()
			}
		}
	}
	return "" // such a program has no cache
})
