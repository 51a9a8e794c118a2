package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/internal/printable"
)

// shownProposals is how many names are proposed at a time.
const shownProposals = 8

// renamesOf reads the values of --rename. A Go name has no equals sign, the name
// of an anchor may have some.
func renamesOf(values []string) (map[string]string, error) {
	renames := map[string]string{}
	for _, v := range values {
		i := strings.LastIndexByte(v, '=')
		if i <= 0 || i == len(v)-1 {
			return nil, fmt.Errorf("--rename %q: want ANCHOR=GoName", v)
		}
		if _, twice := renames[v[:i]]; twice {
			return nil, fmt.Errorf("--rename: %q is given twice, want it once", v[:i])
		}
		renames[v[:i]] = v[i+1:]
	}
	return renames, nil
}

// printProposals prints names that say more than those that the package has, as
// they are to be typed.
func (j *job) printProposals(w io.Writer, all []gen.Rename) {
	if len(all) == 0 {
		return
	}
	shown := all[:min(len(all), shownProposals)]
	var poor, flags, keys []string
	for _, r := range shown {
		poor = append(poor, r.From)
		flags = append(flags, "--rename "+printable.ShellWord(r.Key+"="+r.To))
		keys = append(keys, strconv.QuoteToASCII(r.Key)+": "+r.To)
	}
	if len(shown) < len(all) {
		poor = append(poor, "…")
	}
	yaml := "rename: {" + strings.Join(keys, ", ") + "}"
	if j.project {
		fmt.Fprintf(w, "hint: %s: names that say little (%s); for others, in %s:\n  %s\n", j.dir, strings.Join(poor, ", "), projectFile, yaml)
		return
	}
	fmt.Fprintf(w, "hint: names that say little (%s); for others:\n  %s\nor in %s:\n  %s\n", strings.Join(poor, ", "), strings.Join(flags, " "), projectFile, yaml)
}
