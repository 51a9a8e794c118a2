package popeftest

import "github.com/popefgen/popefgen/popef"

// ModelA is a linear layer for inference as PopART exports it with its weights
// outside the executable: input [4 16], weights [16 8] and [8], output [4 8].
func ModelA() *Fixture {
	f := &Fixture{Name: "A", Metadata: base("3141592653589793238", map10)}
	m := &f.Metadata
	m.IsInference, m.DeviceIterations = true, 1
	m.EngineOptions = engineOptions()
	m.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}}
	w, b := info(popef.F32, 16, 8), info(popef.F32, 8)
	m.Anchors = []popef.Anchor{
		anchor(popef.Output, "init_input", "weight_d2h_init_input", w, 7),
		anchor(popef.Output, "init_input/1", "weight_d2h_init_input/1", b, 7),
		anchor(popef.Input, "input", "h2d_input", info(popef.F32, 4, 16), 5),
		anchor(popef.Output, "Gemm:0", "anchor_d2h_Gemm:0", info(popef.F32, 4, 8), 5),
		anchor(popef.Input, "init_input", "h2d_init_input", w, 0),
		anchor(popef.Input, "init_input/1", "h2d_init_input/1", b, 0),
	}
	f.data()
	f.Files = []File{{"executable.popef", sequence(f.writeMetadata, f.writeExecutable, f.writeOpaque("popart"), f.writeTensors)}}
	return f
}

// ModelB is a ResNet-50 as PopTorch exports it, batch 4 and eight device
// iterations, cut down to three of its weights.
func ModelB() *Fixture {
	f := &Fixture{Name: "B", Metadata: base("12402198715610375921", map10)}
	m := &f.Metadata
	m.IsInference, m.DeviceIterations = true, 8
	m.EngineOptions = engineOptions()
	m.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}}
	weights := []struct {
		name string
		info popef.TensorInfo
	}{
		{"model.conv1.weight", info(popef.F16, 64, 3, 7, 7)},
		{"model.fc.weight", info(popef.F16, 1000, 2048)},
		{"model.fc.bias", info(popef.F16, 1000)},
	}
	for _, w := range weights {
		m.Anchors = append(m.Anchors, anchor(popef.Output, w.name, "weight_d2h_"+w.name, w.info, 7))
	}
	const out = "fc/fc/model/fc/fc/Gemm:0"
	m.Anchors = append(m.Anchors,
		anchor(popef.Input, "input", "h2d_input", info(popef.U8, 4, 3, 224, 224), 5),
		anchor(popef.Output, out, "anchor_d2h_"+out, info(popef.F16, 4, 1000), 5))
	for _, w := range weights {
		m.Anchors = append(m.Anchors, anchor(popef.Input, w.name, "h2d_"+w.name, w.info, 0))
	}
	f.data()
	f.Files = []File{{"executable.popef", sequence(f.writeMetadata, f.writeExecutable, f.writeOpaque("popart"), f.writeTensors, f.writeOpaque("poptorch"))}}
	return f
}

// ModelC is a BERT for question answering as TensorFlow exports it, with its
// variables frozen, batch 2 and sequences of 384.
func ModelC() *Fixture {
	f := &Fixture{Name: "C", Metadata: base("UNHASHED_EXECUTABLE", []string{"load_program", "main_program", "save_program"})}
	m := &f.Metadata
	m.NumIPUs = 2
	m.SeedHandle = "__seed_stream"
	m.ProgramFlow = popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{1}, Save: []uint32{2}}
	for _, name := range []string{"infeed_0.0", "infeed_0.1", "infeed_0.2"} {
		m.Anchors = append(m.Anchors, anchor(popef.Input, name, name, info(popef.S32, 2, 384), 1))
	}
	for _, name := range []string{"outfeed_0.0", "outfeed_0.1"} {
		m.Anchors = append(m.Anchors, anchor(popef.Output, name, name, info(popef.F32, 2, 384), 1))
	}
	f.Files = []File{{"application.popef", sequence(f.writeOpaque("tensorflow"), f.writeExecutable, f.writeMetadata)}}
	return f
}

// ModelD is a training model of two replicas as PopART exports it, with its
// variables in a second file. No session can be made of it.
func ModelD() *Fixture {
	f := &Fixture{Name: "D", Metadata: base("271828182845904523", map10)}
	m := &f.Metadata
	m.ReplicationFactor, m.NumIPUs, m.DeviceIterations = 2, 2, 10
	m.SeedHandle = "h2d_randomSeed___fromHost"
	m.EngineOptions = engineOptions()
	m.ProgramFlow = popef.ProgramFlow{Load: []uint32{0, 1, 2, 4}, Main: []uint32{5}, Save: []uint32{7, 3, 6}}
	perReplica := func(a popef.Anchor) popef.Anchor {
		a.PerReplica = true
		return a
	}
	const (
		seed  = "randomSeed___fromHost"
		rng   = "rngStateTensor"
		rate  = "scaledLearningRate0___default___FLOAT"
		decay = "weightDecayScaleFactor0___default___FLOAT"
	)
	w, b := info(popef.F32, 6, 4), info(popef.F32, 4)
	seedInfo, rngInfo := info(popef.U32, 2), info(popef.U32, 2, 2, 1472, 6, 4)
	m.Anchors = []popef.Anchor{
		anchor(popef.Output, "init_input", "weight_d2h_init_input", w, 7),
		anchor(popef.Output, "init_input/1", "weight_d2h_init_input/1", b, 7),
		perReplica(anchor(popef.Input, "input", "h2d_input", info(popef.F32, 2, 8, 6), 5)),
		perReplica(anchor(popef.Input, "input/1", "h2d_input/1", info(popef.S32, 2, 8), 5)),
		perReplica(anchor(popef.Output, "Nll:0", "anchor_d2h_Nll:0", info(popef.F32, 2), 5)),
		anchor(popef.Output, seed, "d2h_randomSeed", seedInfo, 3),
		perReplica(anchor(popef.Output, rng, "d2h_"+rng, rngInfo, 6)),
		anchor(popef.Input, "init_input", "h2d_init_input", w, 0),
		anchor(popef.Input, "init_input/1", "h2d_init_input/1", b, 0),
		anchor(popef.Input, rate, "h2d_"+rate, info(popef.F32), 1),
		anchor(popef.Input, decay, "h2d_"+decay, info(popef.F32), 1),
		anchor(popef.Input, seed, "h2d_"+seed, seedInfo, 2),
		perReplica(anchor(popef.Input, rng, "h2d_"+rng, rngInfo, 4)),
	}
	f.data()
	f.Files = []File{
		{"executable.popef", sequence(f.writeMetadata, f.writeExecutable, f.writeOpaque("popart"))},
		{"variables.popef", f.writeTensors},
	}
	return f
}
