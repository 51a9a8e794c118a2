package printable

import (
	"fmt"
	"slices"
	"strings"
)

// most is how many names a list shows when there are more.
const most = 12

// List returns names for a message, separated by commas and each as [Line]
// returns it: "none" if there are none, the first and how many there are in all if
// there are more than a dozen.
func List(names []string) string {
	shown := slices.Clone(names[:min(len(names), most)])
	for i, n := range shown {
		shown[i] = Line(n)
	}
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > most:
		return fmt.Sprintf("%s, … (%d in all)", strings.Join(shown, ", "), len(names))
	}
	return strings.Join(shown, ", ")
}

// Quoted is [List] with each name in quotation marks.
func Quoted(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return List(q)
}
