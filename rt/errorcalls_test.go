package rt_test

import (
	"context"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// io returns what requests take.
func (w *walk) io() (*Inputs, *Outputs) { return NewInputs(), NewOutputs() }

// wait is the end of a submitted request.
func (w *walk) wait(ticket rt.Ticket, err error) error {
	if err != nil {
		return err
	}
	switch err = ticket.Wait(w.ctx); {
	case err == nil:
		return ticket.Wait(w.ctx)
	case err == w.ctx.Err(): // that of the caller, as it is
		return nil
	}
	return err
}

// failingCalls has ways in which every method that returns an error can fail, by
// the type and the method.
var failingCalls = map[string][]func(w *walk) error{
	"Runner.Run": {func(w *walk) error { in, out := w.io(); return w.r.Run(w.ctx, in, out) }},
	"Runner.RunOn": {
		func(w *walk) error { in, out := w.io(); return w.r.RunOn(w.ctx, w.r.Config().Replicas-1, in, out) },
		func(w *walk) error { in, out := w.io(); return w.r.RunOn(w.ctx, 7, in, out) },
		func(w *walk) error { in, out := w.io(); return w.r.RunOn(w.ctx, -3, in, out) },
	},
	"Runner.Submit": {func(w *walk) error { in, out := w.io(); return w.wait(w.r.Submit(w.ctx, in, out)) }},
	"Runner.SubmitOn": {
		func(w *walk) error { in, out := w.io(); return w.wait(w.r.SubmitOn(w.ctx, 0, in, out)) },
		func(w *walk) error { in, out := w.io(); return w.wait(w.r.SubmitOn(w.ctx, 9, in, out)) },
	},
	"Runner.TrySubmit": {func(w *walk) error { in, out := w.io(); return w.wait(w.r.TrySubmit(in, out)) }},
	"Runner.TrySubmitOn": {
		func(w *walk) error { in, out := w.io(); return w.wait(w.r.TrySubmitOn(0, in, out)) },
		func(w *walk) error { in, out := w.io(); return w.wait(w.r.TrySubmitOn(9, in, out)) },
		func(w *walk) error {
			var err error
			for range QueueDepth + 2 {
				in, out := w.io()
				_, err = w.r.TrySubmitOn(0, in, out)
			}
			return err
		},
	},
	"Runner.RunSamples": {
		func(w *walk) error { x, y := someSamples(1, 1); return w.r.RunSamples(w.ctx, x, y) },
		func(w *walk) error { x, y := someSamples(1, 4); return w.r.RunSamples(w.ctx, x, y) },
		func(w *walk) error { x, y := someSamples(1, 9); return w.r.RunSamples(w.ctx, x, y) },
		func(w *walk) error { x, y := someSamples(1, 3); return w.r.RunSamples(w.ctx, x, y[1:]) },
	},
	"Runner.RunSamplesOn": {
		func(w *walk) error {
			x, y := someSamples(1, 1)
			return w.r.RunSamplesOn(w.ctx, w.r.Config().Replicas-1, x, y)
		},
		func(w *walk) error { x, y := someSamples(1, 1); return w.r.RunSamplesOn(w.ctx, 4, x, y) },
	},
	"Runner.SubmitSamples": {
		func(w *walk) error { x, y := someSamples(1, 1); return w.wait(w.r.SubmitSamples(w.ctx, x, y)) },
		func(w *walk) error { x, y := someSamples(1, 5); return w.wait(w.r.SubmitSamples(w.ctx, x, y)) },
		func(w *walk) error { x, y := someSamples(1, 5); return w.wait(w.r.SubmitSamples(w.ctx, x, y[1:])) },
	},
	"Runner.SubmitSamplesOn": {
		func(w *walk) error { x, y := someSamples(1, 1); return w.wait(w.r.SubmitSamplesOn(w.ctx, 0, x, y)) },
		func(w *walk) error { x, y := someSamples(1, 1); return w.wait(w.r.SubmitSamplesOn(w.ctx, 5, x, y)) },
	},
	"Runner.UpdateWeights": {
		func(w *walk) error {
			return w.r.UpdateWeights(w.ctx, rt.Weight{Anchor: "w", Data: floats(1, 2)})
		},
		func(w *walk) error { return w.r.UpdateWeights(w.ctx, rt.Weight{Anchor: "w"}) },
		func(w *walk) error { return w.r.UpdateWeights(w.ctx, rt.Weight{Anchor: "x", Data: floats(1, 2)}) },
		func(w *walk) error { return w.r.UpdateWeights(w.ctx, rt.Weight{Anchor: "ww", Data: floats(1, 2)}) },
	},
	"Runner.Save": {func(w *walk) error { return w.r.Save(w.ctx, &SaveOutputs{W: new(W)}) }},
	"Runner.SaveOn": {
		func(w *walk) error { return w.r.SaveOn(w.ctx, w.r.Config().Replicas-1, &SaveOutputs{W: new(W)}) },
		func(w *walk) error { return w.r.SaveOn(w.ctx, 3, &SaveOutputs{W: new(W)}) },
	},
	"Runner.SaveAtClose": {
		func(w *walk) error { return w.r.SaveAtClose(w.ctx, 3, &SaveOutputs{W: new(W)}) },
		func(w *walk) error { return w.r.SaveAtClose(w.ctx, rt.LeastBusy, &SaveOutputs{W: new(W)}) },
		func(w *walk) error {
			return w.r.SaveAtClose(w.ctx, 0, &SaveOutputs{W: new(W)})
		},
		func(w *walk) error {
			if err := w.r.SaveAtClose(w.ctx, 0, &SaveOutputs{W: new(W)}); err != nil {
				return err
			}
			return w.r.Close()
		},
	},
	"Runner.Shutdown": {func(w *walk) error { return w.r.Shutdown(w.ctx) }},
	"Runner.Close": {
		func(w *walk) error { return w.r.Close() },
		func(w *walk) error { // while requests hang or come
			in, out := w.io()
			ticket, err := w.r.TrySubmit(in, out)
			if err != nil {
				return err
			}
			if err := w.r.Close(); err != nil {
				return err
			}
			return ticket.Wait(context.Background())
		},
	},

	"Session.Run":  {func(w *walk) error { return w.s.Run(w.ctx) }, func(w *walk) error { return w.own.Run(w.ctx) }},
	"Session.Load": {func(w *walk) error { return w.s.Load(w.ctx) }, func(w *walk) error { return w.own.Load(w.ctx) }},
	"Session.Save": {func(w *walk) error { return w.s.Save(w.ctx) }, func(w *walk) error { return w.own.Save(w.ctx) }},
	"Session.RunLoaded": {
		func(w *walk) error { return w.s.RunLoaded(w.ctx, mainProgram) },
		func(w *walk) error { return w.s.RunLoaded(w.ctx, 99) },
		func(w *walk) error { return w.own.RunLoaded(w.ctx, saveProgram) },
	},
	"Session.RunPrograms": {
		func(w *walk) error { return w.s.RunPrograms(w.ctx, mainProgram) },
		func(w *walk) error { return w.s.RunPrograms(w.ctx, 99) },
		func(w *walk) error { return w.own.RunPrograms(w.ctx, saveProgram) },
	},
	"Session.Close":    {func(w *walk) error { return w.s.Close() }, func(w *walk) error { return w.own.Close() }},
	"Session.Shutdown": {func(w *walk) error { return w.s.Shutdown(w.ctx) }, func(w *walk) error { return w.own.Shutdown(w.ctx) }},
	"Session.Bind": {
		func(w *walk) error { return w.s.Bind(w.ctx, w.devices[2]) },
		func(w *walk) error { return w.own.Bind(w.ctx, w.devices[0]) },
		func(w *walk) error { return w.own.Bind(w.ctx, nil) },
		func(w *walk) error { return w.own.Bind(w.ctx, mine()) },
	},
	"Session.Unload": {func(w *walk) error { return w.s.Unload(w.ctx) }, func(w *walk) error { return w.own.Unload(w.ctx) }},
	"Session.Reload": {func(w *walk) error { return w.s.Reload(w.ctx) }, func(w *walk) error { return w.own.Reload(w.ctx) }},
	"Session.Stop":   {func(w *walk) error { return w.s.Stop() }, func(w *walk) error { return w.own.Stop() }},
	"Session.UpdateWeights": {
		func(w *walk) error {
			return w.s.UpdateWeights(w.ctx, rt.Weight{Anchor: "w", Data: floats(1, 2)})
		},
		func(w *walk) error { return w.s.UpdateWeights(w.ctx, rt.Weight{Anchor: "h2d_w", Data: floats(1)}) },
		func(w *walk) error { return w.s.UpdateWeights(w.ctx, rt.Weight{Anchor: "nobody"}) },
	},
	"Session.Connect": {
		func(w *walk) error { return w.s.Connect(w.ctx, "nobody", memory{}) },
		func(w *walk) error { return w.s.Connect(w.ctx, "h2d_x", nil) },
		func(w *walk) error { return w.s.Connect(w.ctx, "h2d_x", memory{}) },
	},
	"Session.ConnectData": {
		func(w *walk) error { return w.s.ConnectData(w.ctx, "nobody", nil) },
		func(w *walk) error { return w.s.ConnectData(w.ctx, "h2d_b", floats(1)) },
		func(w *walk) error { return w.s.ConnectData(w.ctx, "anchor_d2h_y", floats(1, 2)) },
	},
	"Session.SetCallback": {
		func(w *walk) error { return modelrt.SetCallback(w.ctx, w.s, "h2d_x", nil) },
		func(w *walk) error {
			return modelrt.SetCallback(w.ctx, w.s, "nobody", func(context.Context, []byte) error { return nil })
		},
	},
	"Session.HandleInputs": {
		func(w *walk) error { return modelrt.HandleInputs(w.ctx, w.s, nil, nil, false) },
		func(w *walk) error {
			return modelrt.HandleInputs(w.ctx, w.own, func(modelrt.Anchor) ipu.Stream { return nil }, func(modelrt.Anchor) modelrt.CallbackPolicy { return 99 }, false)
		},
		func(w *walk) error {
			return modelrt.HandleInputs(w.ctx, w.own, func(modelrt.Anchor) ipu.Stream { panic("ouch") }, nil, false)
		},
	},
	"Session.HandleOutputs": {func(w *walk) error { return modelrt.HandleOutputs(w.ctx, w.s, nil, nil, false) }},
	"Session.Unconnected":   {func(w *walk) error { _, err := w.s.Unconnected(w.ctx); return err }},
	"Session.CheckConnected": {
		func(w *walk) error { return w.s.CheckConnected(w.ctx) },
		func(w *walk) error {
			s, err := modelrt.NewSession(w.ctx, w.own.Model(), rt.WithManager(w.sys.Manager()), modelrt.Deferred())
			if err != nil {
				return err
			}
			defer s.Close()
			return s.CheckConnected(w.ctx)
		},
	},
	"Session.NewQueueManager": {
		func(w *walk) error {
			_, err := modelrt.NewQueueManager(w.ctx, w.own, modelrt.QueueConfig{})
			return err
		},
		func(w *walk) error {
			_, err := modelrt.NewQueueManager(w.ctx, w.s, modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 0 }})
			return err
		},
		func(w *walk) error {
			_, err := modelrt.NewQueueManager(w.ctx, w.s, modelrt.QueueConfig{Batch: func(modelrt.Anchor) int { return 3 }})
			return err
		},
		func(w *walk) error {
			_, err := modelrt.NewQueueManager(w.ctx, w.s, modelrt.QueueConfig{Inputs: func(modelrt.Anchor) modelrt.CallbackPolicy { return 77 }})
			return err
		},
	},

	"QueueManager.InputQueue":  {func(w *walk) error { _, err := w.m.InputQueue("nobody"); return err }},
	"QueueManager.OutputQueue": {func(w *walk) error { _, err := w.m.OutputQueue("nobody"); return err }},
	"QueueManager.FlushAll": {
		func(w *walk) error { w.m.DisconnectAll(); return w.m.FlushAll() },
		func(w *walk) error {
			var err error
			for range 50 {
				err = w.m.FlushAll()
			}
			return err
		},
		func(w *walk) error {
			if err := w.m.Inputs()[0].TryEnqueue(modelrt.InputData{Data: floats(1)}); err != nil {
				return err
			}
			return w.m.FlushAll()
		},
	},
	"QueueManager.Run": {
		func(w *walk) error {
			ctx, cancel := context.WithTimeout(w.ctx, 2*time.Millisecond)
			defer cancel()
			return w.m.Run(ctx)
		},
		func(w *walk) error { w.m.DisconnectAll(); return w.m.Run(w.ctx) },
		func(w *walk) error { // a request, and whatever becomes of it
			ctx, cancel := context.WithTimeout(w.ctx, 2*time.Millisecond)
			defer cancel()
			for _, q := range w.m.Inputs() {
				if err := q.TryEnqueue(modelrt.InputData{Data: make([]byte, q.TransferBytes())}); err != nil {
					return err
				}
			}
			return w.m.Run(ctx)
		},
		func(w *walk) error { // what is enqueued afterwards fails with why
			ctx, cancel := context.WithTimeout(w.ctx, 2*time.Millisecond)
			defer cancel()
			if err := w.m.Run(ctx); err == nil {
				return nil
			}
			return w.m.Inputs()[0].Enqueue(w.ctx, modelrt.InputData{Data: floats(1)})
		},
	},
	"QueueManager.Group": {func(w *walk) error { _, err := w.m.Group(nil); return err }},
	"QueueGroup.Enqueue": {
		func(w *walk) error {
			g, err := w.m.Group()
			if err != nil {
				return err
			}
			return second(g.Enqueue(w.ctx, make([]byte, 3)))
		},
		func(w *walk) error {
			g, err := w.m.Group()
			if err != nil {
				return err
			}
			w.m.DisconnectAll()
			return second(g.Enqueue(w.ctx, make([]byte, 8), make([]byte, 8)))
		},
	},
	"QueueGroup.TryEnqueue": {func(w *walk) error {
		g, err := w.m.Group()
		if err != nil {
			return err
		}
		for {
			if _, err := g.TryEnqueue(make([]byte, 8), make([]byte, 8)); err != nil {
				return err
			}
		}
	}},
	"QueueManager.FlushStarved": {func(w *walk) error { w.m.DisconnectAll(); return w.m.FlushStarved(w.m.Inputs()[0]) }},
	"QueueManager.ResetAll": {
		func(w *walk) error { return w.m.ResetAll(w.ctx) },
		func(w *walk) error {
			for range 2 {
				if err := w.m.Inputs()[0].TryEnqueue(modelrt.InputData{Data: floats(1), OnDone: func(error) { panic("ouch") }}); err != nil {
					return err
				}
			}
			return w.m.ResetAll(w.ctx)
		},
	},
	"InputQueue.Enqueue": {
		func(w *walk) error { return w.m.Inputs()[0].Enqueue(w.ctx, modelrt.InputData{Data: make([]byte, 3)}) },
		func(w *walk) error {
			w.m.Inputs()[0].Disconnect()
			return w.m.Inputs()[0].Enqueue(w.ctx, modelrt.InputData{Data: floats(1)})
		},
		func(w *walk) error {
			ctx, cancel := context.WithTimeout(w.ctx, time.Millisecond)
			defer cancel()
			for {
				if err := w.m.Inputs()[0].Enqueue(ctx, modelrt.InputData{Data: floats(1)}); err != nil {
					return err
				}
			}
		},
	},
	"InputQueue.TryEnqueue": {func(w *walk) error {
		for {
			if err := w.m.Inputs()[0].TryEnqueue(modelrt.InputData{Data: floats(1)}); err != nil {
				return err
			}
		}
	}},
	"InputQueue.EnqueueLock": {func(w *walk) error {
		w.m.Inputs()[0].Disconnect()
		_, err := w.m.Inputs()[0].EnqueueLock(w.ctx)
		return err
	}},
	"InputQueue.EnqueueComplete": {
		func(w *walk) error { return w.m.Inputs()[0].EnqueueComplete() },
		func(w *walk) error {
			if _, err := w.m.Inputs()[0].EnqueueLock(w.ctx); err != nil {
				return err
			}
			return w.m.Inputs()[0].Enqueue(w.ctx, modelrt.InputData{Data: floats(1)})
		},
	},
	"InputQueue.Flush": {
		func(w *walk) error { w.m.Inputs()[0].Disconnect(); return w.m.Inputs()[0].Flush() },
		func(w *walk) error {
			var err error
			for range 50 {
				err = w.m.Inputs()[0].Flush()
			}
			return err
		},
	},
	"InputQueue.Reset": {func(w *walk) error {
		if err := w.m.Inputs()[0].TryEnqueue(modelrt.InputData{Data: floats(1), OnDone: func(error) { panic("ouch") }}); err != nil {
			return err
		}
		return w.m.Inputs()[0].Reset()
	}},
	"OutputQueue.Enqueue": {
		func(w *walk) error { return w.m.Outputs()[0].Enqueue(w.ctx, modelrt.OutputData{Data: make([]byte, 3)}) },
	},
	"OutputQueue.TryEnqueue": {func(w *walk) error {
		for {
			if err := w.m.Outputs()[0].TryEnqueue(modelrt.OutputData{Data: make([]byte, 4)}); err != nil {
				return err
			}
		}
	}},
	"OutputQueue.EnqueueLock": {func(w *walk) error {
		w.m.Outputs()[0].Disconnect()
		_, err := w.m.Outputs()[0].EnqueueLock(w.ctx)
		return err
	}},
	"OutputQueue.EnqueueComplete": {func(w *walk) error { return w.m.Outputs()[0].EnqueueComplete() }},
	"OutputQueue.Flush":           {func(w *walk) error { w.m.Outputs()[0].Disconnect(); return w.m.Outputs()[0].Flush() }},
	"OutputQueue.Reset": {func(w *walk) error {
		if err := w.m.Outputs()[0].TryEnqueue(modelrt.OutputData{Data: make([]byte, 4), OnDone: func(error) { panic("ouch") }}); err != nil {
			return err
		}
		return w.m.Outputs()[0].Reset()
	}},
	"Ticket.Wait": {func(w *walk) error {
		in, out := w.io()
		return w.wait(w.r.Submit(w.ctx, in, out))
	}},
	"Ticket.Err": {func(w *walk) error {
		in, out := w.io()
		ticket, err := w.r.Submit(w.ctx, in, out)
		if err == nil {
			<-ticket.Done()
			err = ticket.Err()
		}
		if err == nil {
			err = ticket.Wait(w.ctx)
		}
		if err == nil {
			err = ticket.Err()
		}
		return err
	}},
}
