package cpu

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/costs"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel"
	"github.com/popefgen/popefgen/ipu/cpu/internal/layout"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
)

// options are an engine's options, parsed.
type options struct {
	plan.Options
	labels    bool
	lookAhead int64 // transfers of an input that a simulated device moves ahead
}

func defaultOptions() options {
	return options{lookAhead: unlimitedAhead, Options: plan.Options{Work: plan.UsualWork, InPlace: true, Alias: true, Prepack: true, Layout: true,
		Options: layout.Options{Threads: runtime.GOMAXPROCS(0), Tiling: true, NHWC: true, Costs: costs.Usual()}}}
}

// maxThreads bounds the option "threads".
const maxThreads = 1024

// option describes one engine option.
type option struct {
	name, help string
	set        func(o *options, value string) error
}

var knownOptions = []option{
	{"alias", `"off" copies every reshaped tensor and every transfer; "on" lets them share memory`,
		onOff(func(o *options) *bool { return &o.Alias })},
	{"costs", `what the engine estimates the times of operators from: a file, or the text, that "popefgen calibrate" writes on a machine; default: built in`, setCosts},
	{"inplace", `"off" never writes a result over an operand; "on" does where it is safe`,
		onOff(func(o *options) *bool { return &o.InPlace })},
	{"labels", `"on" labels goroutines with model, operator and node while they compute, for CPU profiles (go tool pprof -tagfocus); "off" does not`,
		onOff(func(o *options) *bool { return &o.labels })},
	{"layout", `"off" keeps activations as they are in the model, in NCHW; "on" keeps them in NCHWc where that saves time`,
		onOff(func(o *options) *bool { return &o.Layout })},
	{"memory", `the most bytes that a model may take ("8GiB"): decompressed, tables of kernels and the memory of its engines together; default: three quarters of what the machine, its control groups and limits leave`, setMemory},
	{"nhwc", `"off" keeps int8 activations in NCHW; "on" keeps them in NHWC where that saves time and "layout" is on`,
		onOff(func(o *options) *bool { return &o.NHWC })},
	{"prepack", `"off" keeps weights row-major; "on" keeps them in the layout their kernels prefer`,
		onOff(func(o *options) *bool { return &o.Prepack })},
	{"streamCallbacks.maxLookahead", `how many transfers of an input a simulated device moves ahead within a run: a number, 0 for none, or "unlimited", the default, which is up to 4096 or 64 MiB of them; a CPU moves none`, setLookAhead},
	{"threads", "goroutines that compute, the caller of Run included; default: GOMAXPROCS", setThreads},
	{"tiling", `"off" runs operators on NCHWc activations one after the other; "on" runs several of them depth-first, tile by tile, where that saves time`,
		onOff(func(o *options) *bool { return &o.Tiling })},
	{"work", "the most operations, about multiplications, that one run of a program may take, loops without a known end included; default: 1125899906842624 (2 to the power of 50)", setWork},
}

// oldName is the name that an option had before: it is still understood, for
// one version, and a warning says what to write instead.
type oldName struct {
	old, now string
	warn     sync.Once // once a process, however many engines are made
}

var oldNames = []*oldName{{old: "chains", now: "tiling"}, {old: "pixels", now: "nhwc"}}

// current returns the present name of an option, and warns of an old one.
func current(name string) string {
	for _, n := range oldNames {
		if n.old == name {
			n.warn.Do(func() {
				slog.Warn(fmt.Sprintf("the engine option %q is called %q now; the old name will not be understood by the next version", n.old, n.now))
			})
			return n.now
		}
	}
	return name
}

// OptionHelp describes one option of the back end.
type OptionHelp struct{ Name, Help string }

// Options lists the engine options that the back end knows.
func Options() []OptionHelp {
	out := make([]OptionHelp, len(knownOptions))
	for i, o := range knownOptions {
		out[i] = OptionHelp{o.name, o.help}
	}
	return out
}

// parseOptions applies the options in order; of equal names the last wins.
func parseOptions(all []ipu.Option) (options, error) {
	o := defaultOptions()
	for _, opt := range all {
		name := current(opt.Name)
		i := slices.IndexFunc(knownOptions, func(k option) bool { return k.name == name })
		if i < 0 {
			names := make([]string, len(knownOptions))
			for i, k := range knownOptions {
				names[i] = k.name
			}
			return o, invalidOption(opt, "it is unknown; the cpu back end knows "+strings.Join(names, ", "))
		}
		if err := knownOptions[i].set(&o, opt.Value); err != nil {
			return o, invalidOption(opt, err.Error())
		}
	}
	return o, nil
}

func invalidOption(o ipu.Option, why string) error {
	return &ipu.Error{Kind: ipu.KindInvalidOption, Message: fmt.Sprintf("%s=%q: %s", o.Name, o.Value, why)}
}

func onOff(field func(*options) *bool) func(*options, string) error {
	return func(o *options, v string) error {
		if v != "on" && v != "off" {
			return fmt.Errorf(`want "on" or "off"`)
		}
		*field(o) = v == "on"
		return nil
	}
}

func setThreads(o *options, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > maxThreads {
		return fmt.Errorf("want a number from 1 to %d", maxThreads)
	}
	o.Threads = n
	return nil
}

func setMemory(o *options, v string) error {
	n, err := budget.Parse(v)
	if err != nil {
		return err
	}
	o.Memory = max(1, min(n, math.MaxInt/2))
	return nil
}

func setWork(o *options, v string) error {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 1 {
		return fmt.Errorf("want a number of operations, 1 or more")
	}
	o.Work = n
	return nil
}

// setCosts is the option "costs".
func setCosts(o *options, v string) error {
	data := []byte(v)
	if !strings.HasPrefix(v, "{") {
		var err error
		if data, err = costs.ReadFile(v); err != nil {
			return err
		}
	}
	c, err := costs.Parse(data)
	if err != nil {
		return err
	}
	if here := kernel.CostPath(); c.Path != here {
		return fmt.Errorf("%w: it was measured with %s on %q, and kernels use %s here; measure it again (popefgen calibrate)", costs.ErrRecord, c.Path, c.Processor, here)
	}
	o.Costs = c
	return nil
}
