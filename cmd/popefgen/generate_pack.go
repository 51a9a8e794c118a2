package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/gen"
)

// packOf returns how the flags want sequences to share a run, nil if they do not.
func packOf(c *cli.Context) (*gen.PackOptions, error) {
	if !c.IsSet("pack") {
		for _, name := range []string{"pack-axis", "pack-mask", "pack-fill", "unpack"} {
			if c.IsSet(name) {
				return nil, fmt.Errorf("--%s is for --pack INPUTS, which is missing", name)
			}
		}
		return nil, nil
	}
	fill, err := pairsOf("pack-fill", "WHAT=INPUT", c.StringSlice("pack-fill"), "none")
	if err != nil {
		return nil, err
	}
	unpack, err := pairsOf("unpack", "OUTPUT=INPUT", c.StringSlice("unpack"))
	if err != nil {
		return nil, err
	}
	return &gen.PackOptions{Inputs: strings.Split(c.String("pack"), ","), Axis: c.Int("pack-axis"), Mask: c.String("pack-mask"), Fill: fill, Unpack: unpack}, nil
}

// pairsOf reads values like a=b of a flag, or words that stand alone.
func pairsOf(name, want string, values []string, alone ...string) (map[string]string, error) {
	out := map[string]string{}
	for _, v := range values {
		key, value, ok := strings.Cut(v, "=")
		if !slices.Contains(alone, v) && (!ok || key == "" || value == "") {
			return nil, fmt.Errorf("--%s %q: want %s", name, v, want)
		}
		if _, twice := out[key]; twice {
			return nil, fmt.Errorf("--%s %q: %s is given twice", name, v, key)
		}
		out[key] = value
	}
	return out, nil
}

// statesOf reads the values of --state; what is given twice is refused with the model.
func statesOf(values []string) (out []gen.StatePair, err error) {
	for _, v := range values {
		from, to, ok := strings.Cut(v, "=")
		if !ok || from == "" || to == "" {
			return nil, fmt.Errorf("--state %q: want OUTPUT=INPUT", v)
		}
		out = append(out, gen.StatePair{Out: from, In: to})
	}
	return out, nil
}

// packing returns what a project's file says of a package that flags say of one.
func (m *projectModel) packing() (*gen.PackOptions, []gen.StatePair, error) {
	var states []gen.StatePair
	for _, out := range slices.Sorted(maps.Keys(m.State)) {
		states = append(states, gen.StatePair{Out: out, In: m.State[out]})
	}
	if len(m.Pack) == 0 {
		if m.PackAxis != nil || m.PackMask != "" || m.PackFill != nil || m.Unpack != nil {
			return nil, nil, fmt.Errorf("pack-axis, pack-mask, pack-fill and unpack are for pack, which is missing")
		}
		return nil, states, nil
	}
	o := &gen.PackOptions{Inputs: m.Pack, Axis: 1, Mask: m.PackMask, Fill: m.PackFill, Unpack: m.Unpack}
	if m.PackAxis != nil {
		o.Axis = *m.PackAxis
	}
	return o, states, nil
}
