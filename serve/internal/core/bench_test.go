package core

import (
	"context"
	"testing"
)

// BenchmarkRequest is what a request costs beside its transport and its model, alone and among others.
func BenchmarkRequest(b *testing.B) {
	c := New()
	v, err := c.Load(b.Context(), script(1<<10, nil), Load{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	name, input, datatype, shape := []byte("script"), []byte("INPUT0"), []byte("UINT32"), []int64{1, 1}
	one := func() error {
		w, err := c.Lookup(name, nil)
		if err != nil {
			return err
		}
		defer w.Release()
		if err := w.Refusal(); err != nil {
			return err
		}
		call := w.Get()
		defer w.Put(call)
		i, _, err := call.Input(input, datatype, shape)
		if err != nil {
			return err
		}
		if _, err := call.Memory.Input(i, shape); err != nil {
			return err
		}
		if err := call.Done(); err != nil {
			return err
		}
		return v.Run(ctx, call)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := one(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := one(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
