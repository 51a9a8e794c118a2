package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/ipu/cpu/calibrate"
)

// measureCosts is a variable for the tests, which do not want to wait.
var measureCosts = calibrate.Measure

var calibrateCommand = &cli.Command{
	Name:      "calibrate",
	Usage:     "measure what operators take on this machine, for the engine's choices",
	UsageText: "popefgen calibrate [-o COSTS.json]",
	Description: "Which layout activations are kept in, and what is computed depth first, the\n" +
		"engine decides from what its kernels took on one machine. This measures the\n" +
		"same here, in some seconds, and writes a record of it (JSON). The machine\n" +
		"should do nothing else. Results of a model do not depend on the record, only\n" +
		"their time may; equal records give equal plans. The record is used where an\n" +
		"engine gets the option costs:\n\n" +
		"   popefgen calibrate -o costs.json\n" +
		"   popefgen bench model.onnx --compare costs=costs.json\n" +
		"   popefgen run model.onnx --engine-option costs=costs.json\n\n" +
		"and in Go: rt.WithEngineOption(\"costs\", \"costs.json\"), or the record's text in\n" +
		"place of the file's name.",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the record to `FILE`, not to standard output"},
	},
	Action: func(c *cli.Context) error {
		if err := noArgs(c); err != nil {
			return err
		}
		costs, err := measureCosts(c.Context)
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		text, err := costs.JSON()
		if err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		to := c.String("output")
		if to == "" {
			_, err := c.App.Writer.Write(text)
			return err
		}
		if err := atomicfile.WriteBytes(to, text); err != nil {
			return fmt.Errorf("calibrate: %w", err)
		}
		fmt.Fprintf(c.App.ErrWriter, "wrote %s: %s, %s\n", to, costs.Processor, costs.Path)
		return nil
	},
}
