// Package nearest finds what somebody probably meant who wrote a name that does
// not exist.
package nearest

import (
	"fmt"
	"strings"
)

// DidYouMean returns `; did you mean "x"?` for the candidate nearest to what
// was written, or a list of what there is if none is near, or "".
func DidYouMean(written string, candidates []string) string {
	if like := Like(written, candidates); like != "" {
		return like
	}
	if len(candidates) == 0 {
		return ""
	}
	const most = 8
	var quoted []string
	for _, c := range candidates[:min(most, len(candidates))] {
		quoted = append(quoted, fmt.Sprintf("%q", c))
	}
	list := strings.Join(quoted, ", ")
	if len(candidates) > most {
		list += fmt.Sprintf(" and %d more", len(candidates)-most)
	}
	return "; there are " + list
}

// Like returns `; did you mean "x"?` for the candidate nearest to what was written, or "" if none is near: it is for messages that list
// what there is themselves.
func Like(written string, candidates []string) string {
	best, distance := "", len([]rune(written))/3+2
	for _, c := range candidates {
		if d := editDistance(strings.ToLower(written), strings.ToLower(c)); d < distance {
			best, distance = c, d
		}
	}
	if best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// editDistance is the Levenshtein distance of two strings in runes, of which
// at most the first 256 count.
func editDistance(a, b string) int {
	const most = 256
	ra, rb := []rune(a), []rune(b)
	ra, rb = ra[:min(most, len(ra))], rb[:min(most, len(rb))]
	row := make([]int, len(rb)+1)
	for j := range row {
		row[j] = j
	}
	for i, x := range ra {
		diagonal := row[0]
		row[0] = i + 1
		for j, y := range rb {
			cost := 1
			if x == y {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(diagonal+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(rb)]
}
