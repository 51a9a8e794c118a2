package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/tools/go/packages"
)

// references counts what the files of a package use of each other: names that
// one file declares and another one mentions, each once. Files stand in the order
// in which the fewest references point up, as users stand above what they use.
type references struct {
	path  string // below the module
	files []string
	all   int
	up    int
	where []string // the references that point up, as from.go: name of to.go
}

// share is the part of the references that points up.
func (r references) share() float64 {
	if r.all == 0 {
		return 0
	}
	return float64(r.up) / float64(r.all)
}

// measureFiles counts references between the hand-written files of every package of the
// module, as it is built for Linux on amd64. Tests do not count.
func measureFiles(root string) ([]references, error) {
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		Dir:  root,
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		cfg.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	}
	loaded, err := packages.Load(cfg, "./...")
	if err != nil {
		return nil, err
	}
	var all []references
	for _, p := range loaded {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, e)
		}
		all = append(all, measureReferences(p))
	}
	return all, nil
}

func measureReferences(p *packages.Package) references {
	r := references{path: strings.TrimPrefix(p.PkgPath, module+"/")}
	fileOf := func(n ast.Node) string { return filepath.Base(p.Fset.Position(n.Pos()).Filename) }
	var syntax []*ast.File
	for _, f := range p.Syntax {
		if !ast.IsGenerated(f) {
			syntax = append(syntax, f)
			r.files = append(r.files, fileOf(f))
		}
	}
	uses := make([][]int, len(syntax))
	names := map[[2]int][]string{}
	for from, f := range syntax {
		uses[from] = make([]int, len(syntax))
		seen := map[types.Object]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			o := p.TypesInfo.Uses[id]
			if o == nil || o.Pkg() != p.Types || seen[o] {
				return true
			}
			seen[o] = true
			to := slices.Index(r.files, filepath.Base(p.Fset.Position(o.Pos()).Filename))
			if to >= 0 && to != from {
				r.all++
				uses[from][to]++
				names[[2]int{from, to}] = append(names[[2]int{from, to}], o.Name())
			}
			return true
		})
	}
	order := fewestUp(uses)
	files := r.files
	r.files = nil
	for i, from := range order {
		r.files = append(r.files, files[from])
		for _, to := range order[:i] {
			r.up += uses[from][to]
			if uses[from][to] > 0 {
				r.where = append(r.where, fmt.Sprintf("%s: %s of %s", files[from], strings.Join(names[[2]int{from, to}], ", "), files[to]))
			}
		}
	}
	return r
}

// fewestUp returns an order of files in which few uses are of a file further up:
// from one by what each uses and is used, each goes to its best place until none
// has a better one.
func fewestUp(uses [][]int) []int {
	net := func(i int) (n int) {
		for j := range uses {
			n += uses[i][j] - uses[j][i]
		}
		return n
	}
	order := make([]int, len(uses))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return net(b) - net(a) })
	for changed := true; changed; {
		changed = false
		for i, file := range order {
			best, place := 0, i
			gain := 0
			for j := i - 1; j >= 0; j-- {
				if gain += uses[file][order[j]] - uses[order[j]][file]; gain > best {
					best, place = gain, j
				}
			}
			gain = 0
			for j := i + 1; j < len(order); j++ {
				if gain += uses[order[j]][file] - uses[file][order[j]]; gain > best {
					best, place = gain, j
				}
			}
			if place != i {
				order = slices.Insert(slices.Delete(order, i, i+1), place, file)
				changed = true
				break
			}
		}
	}
	return order
}

// printFiles prints which packages have references between files that point up,
// and with a package's path all of those of that package.
func printFiles(w io.Writer, root, of string) error {
	all, err := measureFiles(root)
	if err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b references) int { return b.up - a.up })
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "package\tfiles\treferences\tupward\tshare")
	for _, r := range all {
		if r.all > 0 && (of == "" || r.path == of) {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.1f %%\n", r.path, len(r.files), r.all, r.up, 100*r.share())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range all {
		if r.path == of {
			fmt.Fprintf(w, "\n%s\n\n%s\n", strings.Join(r.files, "\n"), strings.Join(r.where, "\n"))
		}
	}
	return nil
}
