package servetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// Fuzz is a fuzz target: it has bytes read as a request to the model, as REST reads its bodies, of which the first header bytes are JSON,
// or all if header is negative. Whatever they are nothing panics; a request that is taken has every input whole, and
// what the model answers can be written.
func Fuzz(f *testing.F, m oip.Model) {
	spec := m.Spec()
	for _, binary := range []bool{true, false} {
		text, data := example(spec, binary)
		header := int64(-1)
		if binary {
			header = int64(len(text))
		}
		f.Add(append(text, data...), header)
		f.Add(append(text[:len(text)/2], data...), header)
	}
	f.Add([]byte("{}"), int64(-1))
	c := m.NewCall()
	var d wire.Reader
	var r wire.Request
	var w wire.Writer
	f.Fuzz(func(t *testing.T, body []byte, header int64) {
		r.Reset(spec)
		d.Reset(bytes.NewReader(body), int64(len(body)))
		taken := &taken{Call: c, bytes: map[int]int{}}
		if err := d.Request(&r, taken, max(header, -1)); err != nil {
			return
		}
		for i := range spec.Inputs {
			n, ok := taken.bytes[i]
			if !ok || spec.Inputs[i].Type.Size() > 0 && n%spec.Inputs[i].Type.Size() != 0 || int64(n) > spec.Inputs[i].MaxBytes() {
				t.Fatalf("a request is taken with %d bytes of input %q: %v", n, spec.Inputs[i].Name, ok)
			}
		}
		if err := c.Run(context.Background()); err != nil {
			var e *oip.Error
			if !errors.As(err, &e) {
				t.Fatalf("Run returns an error that protocols do not know: %v", err)
			}
			return
		}
		if err := w.Answer(spec.Name, "1", &r, c); err == nil && !json.Valid(w.Text) { // JSON has no infinities
			t.Fatalf("the answer is no JSON: %s", w.Text)
		}
	})
}

// taken notes how much memory each input got.
type taken struct {
	oip.Call
	bytes map[int]int
}

func (c *taken) Input(i int, shape []int64) ([]byte, error) {
	mem, err := c.Call.Input(i, shape)
	c.bytes[i] = len(mem)
	return mem, err
}

// example returns a request of the smallest sizes, as text and what follows it.
func example(spec *oip.Spec, binary bool) (text, data []byte) {
	var inputs []string
	for i := range spec.Inputs {
		t := &spec.Inputs[i]
		shape, n := slices.Clone(t.Shape), 1
		for a, d := range shape {
			shape[a] = max(d, 1)
			n *= int(shape[a])
		}
		mem := make([]byte, n*t.Type.Size())
		Fill(t, mem)
		sizes, _ := json.Marshal(shape)
		name, _ := json.Marshal(t.Name)
		elements := `"parameters":{"binary_data_size":` + fmt.Sprint(len(mem)) + `}`
		switch {
		case binary:
			data = append(data, mem...)
		case t.Type == oip.Bool:
			elements = `"data":[` + strings.Repeat("false,", n-1) + "false]"
		default:
			elements = `"data":[` + strings.Repeat("1,", n-1) + "1]"
		}
		inputs = append(inputs, fmt.Sprintf(`{"name":%s,"shape":%s,"datatype":"%s",%s}`, name, sizes, t.Type, elements))
	}
	return []byte(`{"inputs":[` + strings.Join(inputs, ",") + `]}`), data
}
