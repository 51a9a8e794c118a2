package ring_test

import (
	"context"
	"fmt"
	"time"

	"github.com/popefgen/popefgen/rt/ring"
)

// try ends an example that can't go on.
func try(err error) {
	if err != nil {
		panic(err)
	}
}

// A ring between two goroutines. What C++ asks with isValid after every lock is
// an error here.
func ExampleRing() {
	ctx := context.Background()
	r, err := ring.New(ring.Config[string]{Size: 2, Label: "words"})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() {
		for _, word := range []string{"lock", "fill", "complete"} {
			dst, err := r.WriteLock(ctx) // waits while every buffer is full
			if err != nil {
				return // the ring was invalidated
			}
			*dst = word
			_ = r.WriteComplete()
		}
	}()
	for range 3 {
		src, err := r.ReadLock(ctx)
		if err != nil {
			return
		}
		fmt.Println(*src)
		_ = r.ReadComplete()
	}

	r.Invalidate()
	_, err = r.WriteLock(ctx)
	fmt.Println(err)
	fmt.Println(r.State(""))
	r.Reset()
	fmt.Println(r.Write(ctx, "again"))
	// Output:
	// lock
	// fill
	// complete
	// ring "words": ring was invalidated
	// ring "words": 0 of 2 buffers full, invalid
	// <nil>
}

// Several buffers can be locked for reading; they go back one by one, or all of
// them to be read again.
func ExampleRing_ReadReset() {
	ctx := context.Background()
	r, err := ring.New(ring.Config[int]{Size: 4})
	try(err)
	for i := range 3 {
		try(r.Write(ctx, i))
	}
	read := func() int {
		v, err := r.ReadLock(ctx)
		try(err)
		return *v
	}
	fmt.Println(read(), read())
	try(r.ReadComplete()) // is done with 0
	r.ReadReset()
	fmt.Println(read(), read(), r.ReadAvailable())
	// Output:
	// 0 1
	// 1 2 false
}

// A reader that waits for longer than the timeout calls a function, again and
// again until there is something to read.
func ExampleConfig() {
	ctx := context.Background()
	calls := 0
	r, err := ring.New(ring.Config[string]{
		Size: 1, Timeout: time.Millisecond,
		OnTimeout: func(r *ring.Ring[string]) {
			if calls++; calls == 3 {
				try(r.Write(ctx, "written by the third call"))
			}
		},
	})
	try(err)
	v, err := r.ReadLock(ctx)
	fmt.Println(*v, err)
	// Output: written by the third call <nil>
}
