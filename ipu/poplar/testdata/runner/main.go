//go:build poplar && poplarfake

// Runner makes requests to a generated package on the fake, for TestAgainstCpp, which generates the package:
//
//	runner request N   one after the other; prints the median and the 99th percentile of N requests, in ns
//	runner flight N    with 16 submitted; prints how many it makes in a second
//
// They are those that bench.cpp makes without Go.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/popefgen/popefgen/build/poplar/bench/testdata/adder"
	"github.com/popefgen/popefgen/rt"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: runner request|flight N")
	}
	n, err := strconv.Atoi(os.Args[2])
	check(err)
	ctx := context.Background()
	if os.Args[1] == "request" {
		r, err := adder.Open(ctx, rt.WithBackend("poplar"))
		check(err)
		in, out := request()
		took := make([]int64, n)
		for i := range took {
			start := time.Now()
			check(r.Run(ctx, in, out))
			took[i] = time.Since(start).Nanoseconds()
		}
		answered(out)
		slices.Sort(took)
		fmt.Println(took[n/2], took[n*99/100])
		check(r.Close())
		return
	}
	const flight = 16
	r, err := adder.Open(ctx, rt.WithBackend("poplar"), rt.WithOverlap(flight))
	check(err)
	var ins [flight]*adder.Inputs
	var outs [flight]*adder.Outputs
	var tickets [flight]rt.Ticket
	for i := range flight {
		ins[i], outs[i] = request()
	}
	start := time.Now()
	for k := range n + flight {
		i := k % flight
		if k >= flight {
			check(tickets[i].Wait(ctx))
		}
		if k < n {
			tickets[i], err = r.Submit(ctx, ins[i], outs[i])
			check(err)
		}
	}
	fmt.Println(float64(n) / time.Since(start).Seconds())
	for i := range flight {
		answered(outs[i])
	}
	check(r.Close())
}

func request() (*adder.Inputs, *adder.Outputs) {
	in, out := adder.NewInputs(), adder.NewOutputs()
	for i := range in.B.Data {
		in.B.Data[i] = 0.5
	}
	return in, out
}

func answered(out *adder.Outputs) {
	if out.Y.Data[0] != 0.5 {
		log.Fatal("computing failed")
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
