package popart

import (
	"log/slog"
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
	// EngineOptions reach the back end's engine, in its own words. Those that it does not know are listed by UnknownOptions. The session's own one is debug.instrument: "true" measures every step of programs for
	// execution reports, which takes two readings of the clock for each.
	EngineOptions map[string]string
	// ReportOptions are showExecutionSteps ("true" lists every step in execution reports) and showVarStorage ("true" lists in summaries where every tensor lies). UnknownOptions lists others.
	ReportOptions map[string]string
	// ConvolutionOptions are those of PopLibs, which no back end here takes: UnknownOptions lists them.
	ConvolutionOptions map[string]string

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

	// Logger logs what the session does, by module, instead of the logger that the environment asks for ([LogLevelVariable]). [NewLogHandler] has levels by module.
	Logger *slog.Logger
	// DotChecks names stages of the compilation of which DOT files are written to LogDir, besides those of [DotChecksVariable]: FWD0, FWD1, BWD0 (of training alone), PREALIAS, FINAL or
	// ALL, in any case.
	DotChecks []string
	LogDir    string // folder of DOT files, which has to be there; empty is the working directory
	// TensorMap is a file to which PrepareDevice writes a [MemoryMap] as JSON; empty is what [TensorMapVariable] says.
	TensorMap string
	// EngineCaching keeps compiled models in the folder CachePath (empty: what [CacheVariable] says, else "session_cache"), one PopEF file each, named after a hash of the ONNX model, of the data flow, of all options
	// that a compiled model depends on, and of this module: making the same session again takes the file. Files that are damaged are replaced, and several processes may share the folder. Nothing is ever removed from it.
	EngineCaching bool
	CachePath     string
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
	for _, flag := range []struct {
		of   map[string]string
		name string
	}{{o.EngineOptions, instrument}, {o.ReportOptions, showExecutionSteps}, {o.ReportOptions, showVarStorage}} {
		if v, ok := flag.of[flag.name]; ok && v != "true" && v != "false" {
			return wrong(ErrOption, "%s = %q, want true or false", flag.name, v)
		}
	}
	return nil
}

// engine returns the engine options that the back end of that name gets, and those that it does not know.
func (o *Options) engine(backend string) (known, unknown []ipu.Option) {
	for _, name := range slices.Sorted(maps.Keys(o.EngineOptions)) {
		option := ipu.Option{Name: name, Value: o.EngineOptions[name]}
		switch {
		case name == instrument: // what the session does with it
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
		if name == showExecutionSteps || name == showVarStorage {
			continue
		}
		unknown = append(unknown, ipu.Option{Name: "report." + name, Value: o.ReportOptions[name]})
	}
	return known, unknown
}
