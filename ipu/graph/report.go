package graph

import (
	"fmt"
	"strings"
)

// PassReport is what a pass did.
type PassReport struct {
	Name     string    `json:"name"`
	Before   int64     `json:"before"` // nodes of all graphs
	After    int64     `json:"after"`
	Rewrites []Rewrite `json:"rewrites,omitempty"`
}

// Rewrite is how often a pass did something.
type Rewrite struct {
	What  string `json:"what"`
	Count int64  `json:"count"`
}

// String returns the report in words.
func (r PassReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d → %d nodes", r.Name, r.Before, r.After)
	for _, w := range r.Rewrites {
		fmt.Fprintf(&b, ", %d %s", w.Count, w.What)
	}
	return b.String()
}
