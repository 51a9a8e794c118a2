package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/dynamic"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

// withSize adds --size to a command's flags, unless it is one of those that say how an ONNX
// model is compiled.
func withSize(flags []cli.Flag) []cli.Flag {
	for _, f := range flags {
		if f.Names()[0] == "size" {
			return flags
		}
	}
	return append(flags, &cli.StringSliceFlag{Name: "size", Usage: "size of a model of several that is meant, `NAME=N,NAME=N`"})
}

// takesSize are the commands that run one size of a family, which --size says.
var takesSize = map[string]bool{"run": true, "record": true, "inspect": true}

// askedSizes reads --size: -1 for a dimension that is not given.
func askedSizes(c *cli.Context, f *family.Family) ([]int64, error) {
	var words []string
	for _, s := range c.StringSlice("size") {
		words = append(words, strings.Split(s, ",")...)
	}
	given, err := assignments("size", words)
	if err != nil {
		return nil, err
	}
	if kind.IsONNX(c.Args().First()) {
		given = nil // it says what to compile
	}
	if f == nil {
		if given != nil {
			return nil, fmt.Errorf("--size %s=%s: the model has one size; compile --dim makes several", given[0][0], given[0][1])
		}
		return nil, nil
	}
	var pairs []string
	for _, g := range given {
		pairs = append(pairs, g[0]+"="+g[1])
	}
	return namedSizes(f, "size", pairs)
}

// namedSizes reads sizes of dimensions, NAME=N each: -1 for one that is not given. flag is
// what they are given by.
func namedSizes(f *family.Family, flag string, pairs []string) ([]int64, error) {
	given, err := assignments(flag, pairs)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range f.Dims {
		names = append(names, d.Name)
	}
	sizes := make([]int64, len(f.Dims))
	for d := range sizes {
		sizes[d] = -1
	}
	for _, g := range given {
		d := -1
		for i, name := range names {
			if name == g[0] {
				d = i
			}
		}
		if d < 0 {
			return nil, fmt.Errorf("--%s %s=%s: the model has no such open dimension%s; it has %s", flag, g[0], g[1], nearest.DidYouMean(g[0], names), strings.Join(names, ", "))
		}
		if sizes[d], err = strconv.ParseInt(g[1], 10, 64); err != nil || sizes[d] < 0 {
			return nil, fmt.Errorf("--%s %s=%s: want a number, 0 or more", flag, g[0], g[1])
		}
	}
	return sizes, nil
}

// requestOf returns the request that --size and the values of inputs, as of
// --input, ask of a model; nil if it has one size.
func requestOf(c *cli.Context, m *popef.Model, files [][2]string) (*dynamic.Request, error) {
	f, err := dynamic.FamilyOf(m)
	if err != nil {
		return nil, err
	}
	sizes, err := askedSizes(c, f)
	if f == nil || err != nil {
		return nil, err
	}
	shapes := map[string][]int64{}
	for _, v := range files {
		if shape, ok := dynamic.ShapeOf(f, v); ok {
			shapes[v[0]] = shape
		}
	}
	found, err := f.Sizes(shapes)
	if err != nil {
		return nil, err
	}
	for d, n := range found {
		switch {
		case n < 0:
		case sizes[d] >= 0 && sizes[d] != n:
			return nil, fmt.Errorf("--size %s=%d: the inputs have %d", f.Dims[d].Name, sizes[d], n)
		default:
			sizes[d] = n
		}
	}
	return dynamic.Choose(f, sizes)
}
