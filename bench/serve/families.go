package main

import (
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
func measureFamilies(drive driver, rounds, n int) (string, error) {
	names := append([]string{strings.Join(familySizes, ",")}, familySizes...)
	q := digitsRequest()
	var process []*process
	for _, sizes := range names {
		p, err := start(digitsPrefix + sizes)
		if err != nil {
			return "", err
		}
		defer p.stop()
		if err := check(p.addr, q); err != nil {
			return "", fmt.Errorf("digits for %s: %w", sizes, err)
		}
		process = append(process, p)
	}
	t := report.NewTable("callers", "samples/s, sizes "+names[0], "best single size", "its samples/s", "ratio", "goal", "")
	for _, callers := range familyCallers {
		best := make([]float64, len(process))
		for range rounds {
			for i, p := range process {
				rate, err := drive(p.addr, q, n, callers)
				if err != nil {
					return "", err
				}
				best[i] = max(best[i], rate)
			}
		}
		single := slices.Max(best[1:])
		ratio := best[0] / single
		t.Row(strconv.Itoa(callers), number(best[0]), names[1+slices.Index(best[1:], single)], number(single), fmt.Sprintf("%.2f", ratio), "≥ 0.9", verdict(ratio >= 0.9))
	}
	return t.String(), nil
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "missed"
}
