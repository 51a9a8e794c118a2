package rt_test

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// The caller's weights in place of those in the model's file: every anchor that
// load programs move is left to the caller, the rest uses the file's data.
func ExampleWithDataPolicy() {
	ctx := context.Background()
	model := exampleModel()
	userDataForLoad := modelrt.InLoad(model.Metadata.ProgramFlow, rt.UseUserData, rt.UseFileData)

	session, err := modelrt.NewSession(ctx, model, rt.WithDataPolicy(userDataForLoad))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	must(session.ConnectData(ctx, "h2d_w", floats(100, 1000)))
	must(session.ConnectData(ctx, "h2d_b", floats(0, 0)))

	_, y := connectExample(session)
	must(session.Run(ctx))
	fmt.Println(values(y.Bytes()))
	// Output: [100 1000 200 2000 300 3000 400 4000]
}

// Functions move the data of single streams, by stream handle: an input's fills
// the memory that it gets, an output's takes what is in it. That memory is only
// theirs during the call.
func ExampleSetCallback() {
	session := exampleSession()
	defer session.Close()

	input := floats(1, 1, 2, 2, 3, 3, 4, 4)
	output := make([]byte, len(input))
	must(modelrt.SetCallback(context.Background(), session, "h2d_x", func(_ context.Context, dst []byte) error {
		fmt.Println("copying input from host to IPU")
		copy(dst, input)
		return nil
	}))
	must(modelrt.SetCallback(context.Background(), session, "d2h_y", func(_ context.Context, src []byte) error {
		fmt.Println("copying output from IPU to host")
		copy(output, src)
		return nil
	}))

	must(session.Run(context.Background()))
	fmt.Println(values(output))
	// Output:
	// copying input from host to IPU
	// copying output from IPU to host
	// [12 23 14 26 16 29 18 32]
}

// A Callback has all four functions of a stream, for devices that prefetch.
func ExampleCallback() {
	ctx := context.Background()
	sys := exampleSystem(1)
	session := exampleSession(rt.WithManager(sys.Manager()))
	defer session.Close()
	connectExample(session)

	done, ahead := 0, 0 // batches that were used up, and that the device has beyond these
	fill := func(how string, dst []byte) {
		fmt.Println(how, "batch", done+ahead)
		copy(dst, floats(float32(done+ahead)))
		ahead++
	}
	must(session.Connect(ctx, "h2d_x", &modelrt.Callback{
		OnFetch:      func(_ context.Context, dst []byte) error { fill("fetch", dst); return nil },
		OnPrefetch:   func(dst []byte) bool { fill("prefetch", dst); return true }, // false if there is none yet
		OnComplete:   func() { fmt.Println("complete"); done, ahead = done+1, ahead-1 },
		OnInvalidate: func() { ahead = 0 },
	}))
	must(session.Run(ctx))
	must(session.Run(ctx)) // by now the device knows what the program reads
	// Output:
	// fetch batch 0
	// complete
	// prefetch batch 1
	// complete
}

// One factory makes the host's side of every output that the policy wants one
// for. Here the outputs of save programs get an empty end, and the factory tells
// the rest apart by name.
func ExampleHandleOutputs() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	connectExample(session)

	emptyForSave := modelrt.InSave(session.Contract().Flow, modelrt.BindEmpty, modelrt.BindUser)
	factory := func(a modelrt.Anchor) ipu.Stream {
		switch a.Name {
		case "y":
			return &modelrt.Callback{OnFetch: func(_ context.Context, src []byte) error {
				fmt.Println("y starts with", values(src)[0])
				return nil
			}}
		default:
			return &modelrt.Callback{OnFetch: func(context.Context, []byte) error {
				fmt.Println("callback for", a.Name, "called")
				return nil
			}}
		}
	}
	must(modelrt.HandleOutputs(ctx, session, factory, emptyForSave, false))

	must(session.Run(ctx))
	must(session.Save(ctx)) // what arrives is dropped
	// Output: y starts with 12
}

// With skipConnected the factory is only asked for what nothing is connected
// to: the weights in the file stay.
func ExampleHandleInputs() {
	session := exampleSession()
	defer session.Close()

	factory := func(a modelrt.Anchor) ipu.Stream {
		fmt.Println("asked for", a.Name)
		return nil // keeps what is connected
	}
	must(modelrt.HandleInputs(context.Background(), session, factory, nil, true))
	fmt.Println("and without:")
	must(modelrt.HandleInputs(context.Background(), session, factory, nil, false))
	// Output:
	// asked for x
	// and without:
	// asked for w
	// asked for b
	// asked for x
}

// Memory for every output of the model, whatever they are, and one factory that
// connects each to its own.
func ExampleSession_UserOutputs() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	connectExample(session)

	memory := map[string][]byte{}
	for _, a := range session.UserOutputs() {
		size, err := a.Info.SizeInBytes()
		must(err)
		memory[a.Handle] = make([]byte, size)
	}
	must(modelrt.HandleOutputs(ctx, session, func(a modelrt.Anchor) ipu.Stream {
		dst := memory[a.Handle]
		return &modelrt.Callback{OnFetch: func(_ context.Context, src []byte) error {
			copy(dst, src)
			return nil
		}}
	}, nil, false))

	must(session.Run(ctx))
	must(session.Save(ctx))
	fmt.Println("y:", values(memory["d2h_y"]))
	fmt.Println("w:", values(memory["d2h_w"]))
	// Output:
	// y: [12 23 14 26 16 29 18 32]
	// w: [2 3]
}

// What a predicate returns for every anchor of the model.
func ExamplePredicate() {
	session := exampleSession()
	defer session.Close()
	flow := session.Contract().Flow

	const user, empty, skip = modelrt.BindUser, modelrt.BindEmpty, modelrt.SkipBind
	names := map[modelrt.CallbackPolicy]string{user: "user", empty: "empty", skip: "skip"}
	for _, p := range []struct {
		name   string
		policy modelrt.CallbackPredicate
	}{
		{"load", modelrt.InLoad(flow, user, empty)},
		{"main", modelrt.InMain(flow, user, empty)},
		{"save", modelrt.InSave(flow, user, empty)},
		{"not assigned", modelrt.NotAssigned(user, empty)},
		{"not a scalar", modelrt.NonScalar(user, empty)},
		{"programs 0 and 2", modelrt.InPrograms([]uint32{0, 2}, user, empty)},
		{"by programs", modelrt.ByPrograms([]modelrt.ProgramsPolicy[modelrt.CallbackPolicy]{
			{Programs: []uint32{1}, Policy: user}, {Programs: []uint32{2}, Policy: skip},
		}, empty)},
		{"by anchor", modelrt.ByAnchor([]modelrt.AnchorPolicy[modelrt.CallbackPolicy]{{Handle: "h2d_w", Policy: user}, {Handle: "d2h_w", Policy: skip}}, empty)},
		{"load or save", modelrt.OrBind(user, empty, modelrt.InLoad(flow, user, empty), modelrt.InSave(flow, user, empty))},
		{"load and save", modelrt.AndBind(user, empty, modelrt.InLoad(flow, user, empty), modelrt.InSave(flow, user, empty))},
	} {
		var line []string
		for _, handle := range []string{"h2d_x", "d2h_y", "h2d_w", "d2h_w"} {
			line = append(line, fmt.Sprintf("%-5s", names[p.policy(*session.Contract().Anchor(handle))]))
		}
		fmt.Printf("%-16s %s\n", p.name, line)
	}
	// Output:
	// load             [empty empty user  empty]
	// main             [user  user  empty empty]
	// save             [empty empty empty user ]
	// not assigned     [empty empty empty empty]
	// not a scalar     [user  user  user  user ]
	// programs 0 and 2 [empty empty user  user ]
	// by programs      [user  user  empty skip ]
	// by anchor        [empty empty user  skip ]
	// load or save     [empty empty user  user ]
	// load and save    [empty empty empty empty]
}
