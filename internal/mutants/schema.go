package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// variable is the environment variable with the number of the mutant that a
// binary with many of them runs.
const variable = "POPEFGEN_MUTANT"

// clone is a function with a mutant's mistake in it, under another name. It
// stands behind the source of its file, and the function that it is a clone of
// begins with a call of it if the mutant is the one that runs.
type clone struct {
	number int    // the mutant's, from 1
	file   string // path from the module's root
	pkg    string // the package's name
	at     int    // offset of the function in its file
	text   string
	line   int // its first line in the woven file
	mended int // how often names that nothing uses were mended
}

// name returns what the clone of a function is called.
func (c *clone) name(fn string) string { return fmt.Sprintf("mutant%d_%s", c.number, fn) }

// newClone returns the clone for a mistake inside one function's body, or an
// error that says why the mutant must be compiled by itself.
func newClone(number int, file string, source, mutated []byte) (*clone, error) {
	before, err := parse(source)
	if err != nil {
		return nil, err
	}
	after, err := parse(mutated)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(before) {
		return nil, errors.New("a generated file")
	}
	for i, d := range functions(before) {
		if i >= len(functions(after)) {
			break
		}
		m := functions(after)[i]
		body := offset(d.Body.Lbrace) + 1
		if len(mutated) < body || !bytes.Equal(source[:body], mutated[:body]) || !bytes.Equal(source[offset(d.End()):], mutated[offset(m.End()):]) {
			continue
		}
		if err := cloneable(d, m); err != nil {
			return nil, err
		}
		c := &clone{number: number, file: file, pkg: before.Name.Name, at: offset(d.Pos())}
		name := offset(m.Name.Pos())
		c.text = string(mutated[offset(m.Pos()):name]) + c.name(m.Name.Name) + string(mutated[offset(m.Name.End()):offset(m.End())])
		return c, nil
	}
	return nil, errors.New("not inside one function")
}

// parse parses a file so that a position less 1 is an offset.
func parse(source []byte) (*ast.File, error) {
	return parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution|parser.ParseComments)
}

// offset returns the offset of a position in a file that parse parsed.
func offset(p token.Pos) int { return int(p) - 1 }

// functions returns the functions of a file that have a body.
func functions(f *ast.File) []*ast.FuncDecl {
	var list []*ast.FuncDecl
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
			list = append(list, fn)
		}
	}
	return list
}

// cloneable returns an error if a call of a clone is not the same as the
// function with the mistake in its place.
func cloneable(original, mutated *ast.FuncDecl) error {
	if original.Name.Name == "_" {
		return errors.New("a function without a name")
	}
	if original.Doc != nil {
		for _, c := range original.Doc.List {
			if strings.HasPrefix(c.Text, "//go:") {
				return errors.New("a function with " + c.Text)
			}
		}
	}
	if p := original.Type.TypeParams; p != nil {
		for _, f := range p.List {
			for _, n := range f.Names {
				if n.Name == "_" {
					return errors.New("a type parameter without a name")
				}
			}
		}
	}
	for _, body := range []*ast.BlockStmt{original.Body, mutated.Body} {
		if why := frames(body); why != "" {
			return errors.New(why + " tells a function from one that it calls")
		}
	}
	return nil
}

// frames returns what in a body depends on who calls it: recover, but in a
// function inside it, and what looks at the stack.
func frames(body *ast.BlockStmt) (why string) {
	var depth []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			depth = depth[:len(depth)-1]
			return true
		}
		depth = append(depth, n)
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch fn := call.Fun.(type) {
		case *ast.Ident:
			inside := slices.ContainsFunc(depth, func(n ast.Node) bool { _, ok := n.(*ast.FuncLit); return ok })
			if fn.Name == "recover" && !inside {
				why = "recover"
			}
		case *ast.SelectorExpr:
			if x, ok := fn.X.(*ast.Ident); ok && x.Name == "runtime" && strings.HasPrefix(fn.Sel.Name, "Caller") {
				why = "runtime." + fn.Sel.Name
			}
		}
		return true
	})
	return why
}

// edit is a text in the place of some bytes of a source.
type edit struct {
	from, to int
	text     string
}

// weave returns a file's source with clones of its functions behind it, and a
// choice among them at the beginning of each function that has some. The lines
// of the source stay where they are.
func weave(source []byte, clones []*clone) ([]byte, error) {
	f, err := parse(source)
	if err != nil {
		return nil, err
	}
	var edits []edit
	for _, d := range functions(f) {
		var cases strings.Builder
		var args string
		for _, c := range clones {
			if c.at != offset(d.Pos()) {
				continue
			}
			if cases.Len() == 0 {
				var named []edit
				args, named = arguments(d)
				edits = append(edits, named...)
			}
			fmt.Fprintf(&cases, "case %d: ", c.number)
			call := c.name(d.Name.Name) + args
			if d.Recv != nil {
				call = receiver(d) + "." + call
			}
			if d.Type.Results.NumFields() > 0 {
				fmt.Fprintf(&cases, "return %s; ", call)
			} else {
				fmt.Fprintf(&cases, "%s; return; ", call)
			}
		}
		if cases.Len() > 0 {
			at := offset(d.Body.Lbrace) + 1
			edits = append(edits, edit{at, at, " switch mutantNow { " + cases.String() + "}; "})
		}
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	from := 0
	for _, e := range edits {
		out.Write(source[from:e.from])
		out.WriteString(e.text)
		from = e.to
	}
	out.Write(source[from:])
	out.WriteString("\n")
	line := bytes.Count(out.Bytes(), []byte("\n")) + 1
	for _, c := range clones {
		c.line = line
		out.WriteString(c.text)
		out.WriteString("\n")
		line += strings.Count(c.text, "\n") + 1
	}
	return out.Bytes(), nil
}

// receiver returns the name of a method's receiver in a woven file.
func receiver(d *ast.FuncDecl) string {
	if n := d.Recv.List[0].Names; len(n) == 1 && n[0].Name != "_" {
		return n[0].Name
	}
	return "mutantReceiver"
}

// arguments returns what a function calls its clones with, type arguments and
// arguments, and the edits that name its receiver and its parameters where they
// have no name.
func arguments(d *ast.FuncDecl) (string, []edit) {
	var edits []edit
	name := func(f *ast.Field, n *ast.Ident, as string) {
		if n == nil {
			at := offset(f.Type.Pos())
			edits = append(edits, edit{at, at, as + " "})
			return
		}
		edits = append(edits, edit{offset(n.Pos()), offset(n.End()), as})
	}
	if d.Recv != nil {
		switch f := d.Recv.List[0]; {
		case len(f.Names) == 0:
			name(f, nil, receiver(d))
		case f.Names[0].Name == "_":
			name(f, f.Names[0], receiver(d))
		}
	}
	types := ""
	if p := d.Type.TypeParams; p != nil {
		var names []string
		for _, f := range p.List {
			for _, n := range f.Names {
				names = append(names, n.Name)
			}
		}
		types = "[" + strings.Join(names, ", ") + "]"
	}
	var args []string
	for _, f := range d.Type.Params.List {
		names := f.Names
		if len(names) == 0 {
			names = []*ast.Ident{nil}
		}
		for _, n := range names {
			var as string
			if n != nil && n.Name != "_" {
				as = n.Name
			} else {
				as = fmt.Sprintf("mutantParameter%d", len(args))
				name(f, n, as)
			}
			if _, ok := f.Type.(*ast.Ellipsis); ok {
				as += "..."
			}
			args = append(args, as)
		}
	}
	return types + "(" + strings.Join(args, ", ") + ")", edits
}

// chooser is the file that a package with clones gets besides its own.
func chooser(pkg string) []byte {
	return []byte("package " + pkg + `

import (
	"os"
	"strconv"
)

var mutantNow = func() int {
	n, _ := strconv.Atoi(os.Getenv("` + variable + `"))
	return n
}()
`)
}

var (
	compilerError = regexp.MustCompile(`^(\S+\.go):(\d+):\d+: (.*)$`)
	notUsed       = regexp.MustCompile(`^declared and not used: (\w+)$`)
	cloneName     = regexp.MustCompile(`\bmutant(\d+)_`)
)

// amend mends the clones in which the compiler found names that nothing uses, and
// returns those without the ones that do not compile for another reason. The
// woven file of a name belongs to the file that named gives. It changes nothing
// if no clone is at fault.
func amend(clones []*clone, out string, named map[string]string) (rest []*clone, changed bool) {
	unused := map[*clone]map[int][]string{}
	bad := map[*clone]bool{}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		m := compilerError.FindStringSubmatch(line)
		var at *clone
		n := 0
		if m != nil {
			file := named[m[1][strings.LastIndexAny(m[1], `/\`)+1:]]
			n, _ = strconv.Atoi(m[2])
			for _, c := range clones {
				if c.file == file && n >= c.line && n <= c.line+strings.Count(c.text, "\n") {
					at = c
				}
			}
		}
		if at == nil { // an error elsewhere that names a clone
			for _, name := range cloneName.FindAllStringSubmatch(line, -1) {
				for _, c := range clones {
					if strconv.Itoa(c.number) == name[1] {
						bad[c] = true
					}
				}
			}
			continue
		}
		if u := notUsed.FindStringSubmatch(m[3]); u != nil && at.mended < 3 {
			if unused[at] == nil {
				unused[at] = map[int][]string{}
			}
			unused[at][n-at.line] = append(unused[at][n-at.line], u[1])
			continue
		}
		bad[at] = true
	}
	for c, names := range unused {
		lines := strings.Split(c.text, "\n")
		for i, list := range names {
			for _, n := range list {
				lines[i] += "\n_ = " + n
			}
		}
		c.text = strings.Join(lines, "\n")
		c.mended++
	}
	for _, c := range clones {
		if !bad[c] {
			rest = append(rest, c)
		}
	}
	return rest, len(unused) > 0 || len(bad) > 0
}
