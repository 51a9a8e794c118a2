package rt_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// A session of a model that the program has loaded.
func ExampleNewSession() {
	ctx := context.Background()
	model := exampleModel() // as popef.Load returns it
	defer model.Close()

	session, err := modelrt.NewSession(ctx, model)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	fmt.Println(session.Device().Info().Kind, session.Bound())
	// Output: cpu true
}

// A session of a model that is spread over several files, which the session
// loads and closes.
func ExampleOpenSession() {
	paths, remove := exampleFiles() // line.popef has the executable, weights.popef the weights
	defer remove()

	session, err := modelrt.OpenSession(context.Background(), paths)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	for _, a := range session.Inputs() {
		fmt.Println(a.Name, a.Info, a.HasData)
	}
	// Output:
	// b F32 [2] true
	// w F32 [2] true
	// x F32 [4 2] false
}

// The session takes a device when it is made. If every one is busy it tries
// again every second, for five seconds.
func ExampleWithWait() {
	sys := exampleSystem(1)
	sys.OccupyFor(0, 3*time.Second) // by somebody else; the test system's clock passes as soon as anybody sleeps

	upTo5s := ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 5 * time.Second, Sleep: time.Second}
	session, err := modelrt.NewSession(context.Background(), exampleModel(), rt.WithManager(sys.Manager()), rt.WithWait(upTo5s))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	fmt.Println("waited", sys.Clock().Slept())
	// Output: waited [1s 1s 1s]
}

// Everything that a session can be told when it is made: which data is the
// caller's, that another version of Poplar will do, how long to wait for a
// device.
func ExampleNewSession_options() {
	ctx := context.Background()
	model := exampleModel()
	flow := model.Metadata.ProgramFlow

	session, err := modelrt.NewSession(ctx, model,
		rt.WithDataPolicy(modelrt.InLoad(flow, rt.UseUserData, rt.UseFileData)),
		rt.SkipHashCheck(),
		rt.WithWait(ipu.WaitFor(5*time.Second)),
		rt.WithLookAhead(0),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()

	fmt.Println(session.CheckConnected(ctx, 0))
	// Output: line.popef: check streams: nothing is connected to input "w" F32 [2] (handle "h2d_w", programs [0]); input "b" F32 [2] (handle "h2d_b", programs [0])
}

// Without a device that fits there is no session: NewSession acquires, loads
// and connects everything or nothing.
func ExampleNewSession_noDevice() {
	sys := exampleSystem(1)
	sys.Occupy(0)

	_, err := modelrt.NewSession(context.Background(), exampleModel(), rt.WithManager(sys.Manager()))
	fmt.Println(errors.Is(err, ipu.ErrNoDevice))
	// Output: true
}

// A model that was compiled for several replicas can't be run by a session.
func ExampleNewSession_replicated() {
	model := exampleModel()
	model.Metadata.ReplicationFactor = 2

	_, err := modelrt.NewSession(context.Background(), model)
	fmt.Println(err)
	// Output: line.popef: open: unsupported replication factor 2: only models of one replica can be run; compile it without replication
}

// A deferred session has no device until it is bound to one, which the caller
// acquires and owns.
func ExampleSession_Bind() {
	ctx := context.Background()
	devices := exampleSystem(1).Manager() // with hardware: new(ipu.Manager)

	session, err := modelrt.NewSession(ctx, exampleModel(), modelrt.Deferred(), rt.WithBackend("iputest"), rt.WithManager(devices))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	fmt.Println(errors.Is(session.Run(ctx), rt.ErrUnbound))

	device, err := devices.Get(ctx, session.Target().Request()) // one that is suitable for the model
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Detach()
	if err := session.Bind(ctx, device); err != nil {
		fmt.Println(err)
		return
	}

	_, y := connectExample(session)
	fmt.Println(session.Run(ctx), values(y.Bytes()))
	// Output:
	// true
	// <nil> [12 23 14 26 16 29 18 32]
}

// A session that leaves its device and comes back: weights are loaded again
// before the next run.
func ExampleSession_Unload() {
	ctx := context.Background()
	sys := exampleSystem(1)
	session := exampleSession(rt.WithManager(sys.Manager()))
	defer session.Close()
	connectExample(session)

	must(session.Run(ctx))
	fmt.Println("unload:", session.Unload(ctx)) // from the device, which others can have now
	fmt.Println("bound:", session.Bound())
	fmt.Println("reload:", session.Reload(ctx)) // onto the same device
	must(session.Run(ctx))
	printEvents(sys)
	// Output:
	// unload: <nil>
	// bound: false
	// reload: <nil>
	// device 0: attach
	// load on 0
	// run 0
	// run 1
	// device 0: detach
	// device 0: attach
	// load on 0
	// run 0
	// run 1
}

// Programs are run by group, or one by one in any order.
func ExampleSession_RunPrograms() {
	ctx := context.Background()
	sys := exampleSystem(1)
	session := exampleSession(rt.WithManager(sys.Manager()))
	defer session.Close()
	connectExample(session)
	must(modelrt.SetCallback(ctx, session, "d2h_w", func(context.Context, []byte) error { return nil }))
	sys.ClearLog()

	must(session.Load(ctx))                 // the load programs
	must(session.Run(ctx))                  // the main programs
	must(session.Save(ctx))                 // the save programs
	must(session.RunPrograms(ctx, 1, 1, 2)) // these, in this order, and no others
	printEvents(sys)
	fmt.Println(session.RunPrograms(ctx, 7))
	// Output:
	// run 0
	// run 1
	// run 2
	// run 1
	// run 1
	// run 2
	// line.popef: run programs: unknown program 7
}

// A program that is stopped leaves the device in no defined state: Reload makes
// the session work again.
func ExampleSession_Stop() {
	ctx := context.Background()
	session := exampleSession()
	defer session.Close()
	connectExample(session)

	fmt.Println(session.Stop(), session.Stopped())
	fmt.Println(errors.Is(session.Run(ctx), rt.ErrStopped))
	fmt.Println(session.Reload(ctx), session.Stopped())
	fmt.Println(session.Run(ctx))
	// Output:
	// <nil> true
	// true
	// <nil> false
	// <nil>
}

// Two sessions share a device. Each that runs makes the other one leave, whose
// weights are saved if it asked for that, and loads its own.
func ExampleSession_sharedDevice() {
	ctx := context.Background()
	sys := exampleSystem(1)
	device := sys.Device(0)
	defer device.Detach()

	tell := func(who string) rt.Option {
		return rt.WithObserver(func(e rt.Event) {
			switch e.Kind {
			case rt.EventBound, rt.EventHandedOver, rt.EventTookBack, rt.EventLoaded, rt.EventSaved:
				fmt.Println(who, e.Kind)
			}
		})
	}
	first := exampleSession(rt.WithDevice(device), rt.WithManager(sys.Manager()), rt.SaveOnUnbind(), tell("first:"))
	defer first.Close()
	connectExample(first)
	must(modelrt.SetCallback(ctx, first, "d2h_w", func(context.Context, []byte) error { return nil }))
	must(first.Run(ctx))

	second := exampleSession(rt.WithDevice(device), rt.WithManager(sys.Manager()), tell("second:"))
	defer second.Close()
	connectExample(second)
	must(second.Run(ctx))

	must(first.Run(ctx))
	must(first.Unload(ctx))
	// Output:
	// first: bound
	// first: loaded
	// first: saved
	// first: handed over
	// second: bound
	// second: loaded
	// second: handed over
	// first: took back
	// first: loaded
	// first: saved
}

// Weights are saved before a session leaves its device, also when it is closed.
func ExampleSaveOnUnbind() {
	ctx := context.Background()
	session := exampleSession(rt.SaveOnUnbind())
	connectExample(session)
	must(modelrt.SetCallback(ctx, session, "d2h_w", func(_ context.Context, w []byte) error {
		fmt.Println("saved:", values(w))
		return nil
	}))
	must(session.Run(ctx))
	must(session.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(5, 7)}))
	fmt.Println("close")
	must(session.Close())
	// Output:
	// close
	// saved: [5 7]
}

// What would run without a host's side for its streams is reported before it is
// run, or by the run.
func ExampleSession_Unconnected() {
	session := exampleSession()
	defer session.Close()

	missing, err := session.Unconnected(context.Background(), 1, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	for program := range 3 {
		for _, stream := range modelrt.ByProgram(missing)[program] {
			fmt.Println("program", program, "lacks", stream.Anchor)
		}
	}
	err = session.CheckConnected(context.Background(), 2)
	var unconnected *rt.UnconnectedError
	fmt.Println(errors.As(err, &unconnected), unconnected)
	// Output:
	// program 1 lacks x
	// program 1 lacks y
	// program 2 lacks w
	// true nothing is connected to output "w" F32 [2] (handle "d2h_w", programs [2])
}
