package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/bench/report"
)

// familySizes are those for which the example digits is compiled: all at once, and each alone.
var (
	familySizes   = []string{"1", "4", "16", "32"}
	familyCallers = []int{1, 4, 16, 64}
)

// digitsRequest is one sample of the example digits, with a binary tensor.
func digitsRequest() *request {
	const pixels = 64
	head := fmt.Sprintf(`{"inputs":[{"name":"image","shape":[1,1,8,8],"datatype":"FP32","parameters":{"binary_data_size":%d}}],"parameters":{"binary_data_output":true}}`, 4*pixels)
	return &request{
		path:   restPath,
		header: map[string]string{"Content-Type": "application/octet-stream", headerSize: strconv.Itoa(len(head))},
		body:   append([]byte(head), raw(floats(pixels))...),
		correct: func(answer []byte) error {
			if len(answer) < 40 || !strings.Contains(string(answer), "probabilities") {
				return fmt.Errorf("no probabilities in an answer of %d bytes: %.200s", len(answer), answer)
			}
			return nil
		},
	}
}

// measureFamilies has callers of one sample each ask the example digits, compiled for several sizes and for each of them alone.
func measureFamilies(o *options) (string, error) {
	const goal = 0.9
	names := append([]string{strings.Join(familySizes, ",")}, familySizes...)
	t := report.NewTable("callers", "samples/s, sizes "+names[0], "best single size", "its samples/s", "ratio", "goal", "")
	for _, callers := range familyCallers {
		all, err := familySet(o, names, callers)
		if err != nil {
			return "", err
		}
		middle := func(i int) float64 { return median(figures(all[i], rate)) }
		best := slices.MaxFunc([]int{1, 2, 3, 4}, func(a, b int) int { return cmp.Compare(middle(a), middle(b)) })
		part := ratio(figures(all[0], rate), figures(all[best], rate))
		t.Row(strconv.Itoa(callers), number(middle(0)), names[best], number(middle(best)), fmt.Sprintf("%.2f", part), fmt.Sprintf("≥ %g", goal), verdict(part >= goal))
	}
	return t.String(), nil
}

func familySet(o *options, names []string, callers int) ([][]cost, error) {
	var all []*contestant
	for _, sizes := range names {
		c, err := enter(digitsPrefix+sizes, digitsRequest(), callers)
		if err != nil {
			return nil, fmt.Errorf("digits for %s: %w", sizes, err)
		}
		defer c.leave()
		all = append(all, c)
	}
	return compete(all, o.rounds, o.requests)
}
