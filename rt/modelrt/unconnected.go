package modelrt

import "github.com/popefgen/popefgen/rt"

// ByProgram sorts unconnected streams by the programs that move them.
func ByProgram(streams []rt.Unconnected) map[int][]rt.Unconnected {
	m := map[int][]rt.Unconnected{}
	for _, u := range streams {
		for _, p := range u.Programs {
			m[p] = append(m[p], u)
		}
	}
	return m
}
