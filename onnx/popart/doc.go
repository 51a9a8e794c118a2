// Package popart is PopART's sessions in Go: an ONNX model is compiled for a [DataFlow], put on a [Device] and run with a [StepIO].
//
//	flow := popart.DataFlow{BatchesPerStep: 4, Anchors: popart.Anchors{"loss": popart.Final}}
//	s, err := popart.NewTrainingSession(ctx, popart.File("digits.onnx"), flow, popart.Nll{Output: "probabilities", Label: "labels"},
//		popart.ConstSGD(0.1), popart.CPU(), popart.Shapes{"image": {64, 1, 8, 8}}, nil)
//	…
//	err = s.PrepareDevice(ctx)
//	err = s.WeightsFromHost(ctx)
//	err = s.Run(ctx, popart.Arrays(inputs, results))
//
// Names, defaults and rules are those of PopART's user guide and headers. What a session runs is a PopEF model like any other: [TrainingSession.SaveExecutable] writes
// it, and popefgen generate makes a typed package of it.
//
// # Micro-batches and replicas
//
// A run, which PopART calls a step, computes BatchesPerStep batches, each of Options.AccumulationFactor × Options.ReplicationFactor micro-batches, whose size is that of the
// model's inputs. Replicas are computed one after the other: the sum of their gradients is that of devices side by side.
// Data of an input is [batches per step, accumulation, replicas, micro-batch, …sample]; only the number of elements is checked.
//
// # Errors
//
// Every error is an [*Error], and errors.Is with [ErrPopART] holds for it. [ErrRuntime] holds for what happens to devices and while a program runs, [ErrInternal] for
// mistakes of the package itself, panics among them; ipu's errors stand below, with what a device said. No method panics.
//
// Sessions may be used by several goroutines: one call at a time is under way, others wait.
package popart
