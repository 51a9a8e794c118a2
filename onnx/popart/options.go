package popart

import (
	"maps"
	"slices"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/ipu/graph/optim"
)

// Shapes are shapes of inputs by name, where the ONNX model leaves dimensions open; and of those alone that need one.
type Shapes map[string][]int64

// Options are PopART's SessionOptions, as far as they mean something here. The zero Options and nil are the defaults.
type Options struct {
	// EngineOptions reach the back end's engine, in its own words. Those that it does not know are listed by UnknownOptions.
	EngineOptions map[string]string
	// ConvolutionOptions and ReportOptions are those of PopLibs and of Poplar's reports, which no back end here takes: UnknownOptions lists them.
	ConvolutionOptions map[string]string
	ReportOptions      map[string]string

	AccumulationFactor int // micro-batches of a batch, for a training session; 0 is 1
	ReplicationFactor  int // 0 is 1
	// VariableWeights lets WriteWeights and ResetHostWeights change the weights of an inference session (PopART's constantWeights = false).
	VariableWeights bool
	// SumReduction adds the gradients of the micro-batches of a batch up (PopART's ReductionType::Sum); else their mean is taken.
	SumReduction bool
	// Recompute says what of the forward pass the backward pass computes again.
	Recompute autodiff.Recompute
	// AutomaticLossScaling changes the loss scaling by itself.
	AutomaticLossScaling bool
	// ClipNorms bound the norms of gradients, of groups of weights.
	ClipNorms []optim.Clip
	// Frozen are patterns of weights that are not trained.
	Frozen []string
	// Seed is the seed of random numbers, of dropout and of operators that draw them, until SetRandomSeed.
	Seed uint64
}

// check refuses what can't be.
func (o *Options) check() error {
	for _, n := range []struct {
		what  string
		count int
	}{{"accumulation factor", o.AccumulationFactor}, {"replication factor", o.ReplicationFactor}} {
		if n.count < 0 {
			return wrong(ErrOption, "%s %d, want 1 or more", n.what, n.count)
		}
	}
	return nil
}

// engine returns the engine options that the back end of that name gets, and those that it does not know.
func (o *Options) engine(backend string) (known, unknown []ipu.Option) {
	for _, name := range slices.Sorted(maps.Keys(o.EngineOptions)) {
		option := ipu.Option{Name: name, Value: o.EngineOptions[name]}
		switch {
		case backend == cpu.Name && !slices.ContainsFunc(cpu.Options(), func(k cpu.OptionHelp) bool { return k.Name == name }):
			unknown = append(unknown, option)
		default:
			known = append(known, option)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.ConvolutionOptions)) {
		unknown = append(unknown, ipu.Option{Name: "convolution." + name, Value: o.ConvolutionOptions[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(o.ReportOptions)) {
		unknown = append(unknown, ipu.Option{Name: "report." + name, Value: o.ReportOptions[name]})
	}
	return known, unknown
}
