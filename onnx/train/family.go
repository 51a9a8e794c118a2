package train

import (
	"bytes"
	"context"
	"sync"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef/family"
)

// compileFamily compiles m for several sizes that learn the same weights.
func compileFamily(ctx context.Context, m *onnx.Model, o Options) (*Result, error) {
	for _, n := range []struct {
		what, flag string
		count      int64
	}{{"batches a step", "iterations", o.Iterations}, {"micro-batches for an update", "accumulate", o.Accumulation}, {"replicas", "replicas", o.Replicas}} {
		if n.count > 1 {
			return nil, refuse("%d %s, and several sizes: a step of a model of several sizes is one batch of one size; leave out --%s, or give one size", n.count, n.what, n.flag)
		}
	}
	var mu sync.Mutex
	var t *trainer // of any member: what is taken of it is the same in all
	joined, err := compile.JoinTrained(ctx, m, compile.Options{Options: o.Options, Members: o.Members, Rules: o.Rules}, func(ctx context.Context, sized onnx.Options) (*compile.Result, error) {
		own := o
		own.Options, own.Stage, own.Pass = sized, nil, nil
		one, err := compileOne(ctx, m, own)
		if err != nil {
			return nil, err
		}
		r := one.result
		mu.Lock()
		defer mu.Unlock()
		if t == nil {
			t = one
		}
		for i := range r.Data { // each value in memory once
			if first := t.result.Data; i < len(first) && bytes.Equal(r.Data[i].Data, first[i].Data) {
				r.Data[i].Data = first[i].Data
			}
		}
		return &compile.Result{Executable: r.Executable, Metadata: r.Metadata, Inputs: r.Inputs, Outputs: r.Outputs, Weights: r.Data, Warnings: r.Warnings}, nil
	})
	if err != nil {
		return nil, err
	}
	r := t.result
	r.Executable, r.Metadata, r.Data, r.Inputs, r.Outputs, r.Family, r.Warnings = joined.Executable, joined.Metadata, joined.Weights, joined.Inputs, joined.Outputs, joined.Family, joined.Warnings
	r.Blobs = append(r.Blobs, export.Blob{Name: family.BlobName, Data: r.Family.Encode()})
	return t.finish()
}
