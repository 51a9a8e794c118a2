package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// maxFlag bounds sizes that data decides.
var maxFlag = &cli.StringSliceFlag{Category: onnxOnly, Name: "max", Usage: "the most elements that data may make of an axis, `NAME=SIZE`, by the name of the value or of its open dimension; more is an error at run time"}

// maxima returns what --max says.
func maxima(c *cli.Context) (map[string]int64, error) {
	most := map[string]int64{}
	for _, text := range c.StringSlice("max") {
		at := max(strings.LastIndexByte(text, '='), 0)
		name := text[:at]
		n, err := strconv.ParseInt(strings.TrimPrefix(text[at:], "="), 10, 64)
		if name == "" || err != nil || n < 1 {
			return nil, fmt.Errorf("--max %s: want NAME=SIZE with a size of at least 1, one for each --max", text)
		}
		if _, ok := most[name]; ok {
			return nil, fmt.Errorf("--max: %q is given twice, want it once", name)
		}
		most[name] = n
	}
	return most, nil
}
