package popart

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu"
)

// modelOption is an option of createIpuModelDevice.
type modelOption struct {
	name string
	set  func(s *ipu.Simulation, value string) error
}

var modelOptions = []modelOption{
	{"compileIPUCode", func(_ *ipu.Simulation, v string) error {
		if v != "false" && v != "0" {
			return fmt.Errorf(`want "false": there is no code of an IPU to compile`)
		}
		return nil
	}},
	{"ipuVersion", func(s *ipu.Simulation, v string) error {
		n, ok := strings.CutPrefix(v, "ipu")
		switch {
		case ok && n == "2":
			s.Version = 2
		case ok && n == "21":
			s.Version = 21
		default:
			return fmt.Errorf(`want "ipu2" or "ipu21"`)
		}
		return nil
	}},
	{"numIPUs", positive(func(s *ipu.Simulation) *int { return &s.NumIPUs })},
	{"tilesPerIPU", positive(func(s *ipu.Simulation) *int { return &s.TilesPerIPU })},
}

func positive(field func(*ipu.Simulation) *int) func(*ipu.Simulation, string) error {
	return func(s *ipu.Simulation, v string) error {
		n, err := strconv.ParseInt(v, 10, 32)
		if err != nil || n < 1 {
			return fmt.Errorf("want a number, 1 or more")
		}
		*field(s) = int(n)
		return nil
	}
}

// ParseIPUModel returns what the options of PopART's createIpuModelDevice say: numIPUs, tilesPerIPU, ipuVersion ("ipu2" or "ipu21") and compileIPUCode, which can only be false. What they
// leave open is as in the zero [ipu.Simulation]. The error wraps [ErrOption] for others, and for values that can't be.
func ParseIPUModel(options map[string]string) (ipu.Simulation, error) {
	var s ipu.Simulation
	for _, name := range slices.Sorted(maps.Keys(options)) {
		i := slices.IndexFunc(modelOptions, func(o modelOption) bool { return o.name == name })
		if i < 0 {
			var names []string
			for _, o := range modelOptions {
				names = append(names, o.name)
			}
			return s, wrong(ErrOption, "IPU model: %s=%q is unknown, want one of %s", name, options[name], strings.Join(names, ", "))
		}
		if err := modelOptions[i].set(&s, options[name]); err != nil {
			return s, wrong(ErrOption, "IPU model: %s=%q: %v", name, options[name], err)
		}
	}
	return s, nil
}

// holds returns an error if a simulated device has fewer IPUs than there are replicas of a model.
func (d *Device) holds(replicas int) error {
	if d.Info().Kind != "ipu_model" {
		return nil
	}
	return ipu.Target{NumIPUs: replicas}.Check(d.Info())
}
