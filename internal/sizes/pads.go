package sizes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/popefgen/popefgen/popef/family"
)

// Literal returns a scalar of YAML as it is written on a command line.
func Literal(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case int64, uint64, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// PadsOf returns what a YAML file says that dimensions are filled up with: the value of each input by its name, by
// dimension.
func PadsOf(given map[string]map[string]any) (map[string][]family.Pad, error) {
	var pads map[string][]family.Pad
	for _, dim := range slices.Sorted(maps.Keys(given)) {
		for _, input := range slices.Sorted(maps.Keys(given[dim])) {
			value, ok := Literal(given[dim][input])
			if !ok {
				return nil, fmt.Errorf("%s: %s: found %v, want a number", dim, input, given[dim][input])
			}
			if pads == nil {
				pads = map[string][]family.Pad{}
			}
			pads[dim] = append(pads[dim], family.Pad{Input: input, Value: value})
		}
	}
	return pads, nil
}
