package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/inspect"
	"github.com/popefgen/popefgen/cmd/popefgen/internal/kind"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
)

var inspectCommand = &cli.Command{
	Name:      "inspect",
	Usage:     "show what is in a model's files, or draw it",
	UsageText: "popefgen inspect MODEL.popef… | MODEL.onnx [--json] [--plan] [flags]\npopefgen inspect --html FILE | --svg FILE | --dot  MODEL.popef… | MODEL.onnx [flags]\n\nexample: popefgen inspect digits.popef\n         popefgen inspect digits.popef --html digits.html",
	ArgsUsage: "MODEL.popef… | MODEL.onnx",
	Flags: withSize(append([]cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "plan", Usage: "print the CPU engine's plan of every program, step by step"},
		engineOptionFlag,
	}, pictureFlags...)),
	Action: func(c *cli.Context) error {
		if c.NArg() == 0 {
			return fmt.Errorf("inspect: which file? (usage: popefgen inspect MODEL.popef… | MODEL.onnx)")
		}
		picture, err := wantsPicture(c)
		if err != nil {
			return err
		}
		if picture {
			if err := drawModel(c); err != nil {
				return fmt.Errorf("inspect: %w", err)
			}
			return nil
		}
		return named("inspect", showModel(c))
	},
}

// showModel prints what is in the files.
func showModel(c *cli.Context) error {
	var (
		in        *inspect.Inspection
		open, err error
	)
	if paths := c.Args().Slice(); slices.ContainsFunc(paths, kind.IsONNX) {
		in, open, err = inspectONNX(c, paths)
	} else if err = noModelFlags(c, paths[0]); err == nil {
		in, err = inspectFiles(c, paths)
	}
	if in == nil {
		return err
	}
	for _, w := range in.Warnings {
		fmt.Fprintf(c.App.ErrWriter, "warning: %s\n", w)
	}
	var printing error
	if c.Bool("json") {
		e := json.NewEncoder(c.App.Writer)
		e.SetIndent("", "  ")
		printing = e.Encode(in)
	} else {
		printing = in.Print(c.App.Writer, c.Bool("plan"))
	}
	if open != nil {
		fmt.Fprintf(c.App.ErrWriter, "the file as it is; to see it compiled: %v\n", open)
	}
	return errors.Join(err, printing)
}

// inspectFiles reads the files and gathers what is to be said.
func inspectFiles(c *cli.Context, paths []string) (*inspect.Inspection, error) {
	r := popef.NewReader()
	defer r.Close()
	for _, p := range paths {
		if err := r.AddFileContext(c.Context, p); err != nil {
			return nil, kind.NotPopEF(err, p)
		}
	}
	options, err := engineOptions(c)
	if err != nil {
		return nil, err
	}
	in := inspect.New()
	return in, in.Add(c.Context, r, options, memberAsked(c))
}

// memberAsked returns what chooses the member of a family that --size names.
func memberAsked(c *cli.Context) inspect.Chooser {
	return func(m *popef.Model, f *family.Family) (member int, asked bool, err error) {
		if f == nil {
			_, err := askedSizes(c, nil)
			return 0, false, err
		}
		if !c.IsSet("size") || kind.IsONNX(c.Args().First()) {
			return 0, false, nil
		}
		r, err := requestOf(c, m, nil)
		if err != nil {
			return 0, false, err
		}
		return r.Member, true, nil
	}
}
