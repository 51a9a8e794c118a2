package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/popefgen/popefgen"

// key names a function, method or variable of package level: packages are
// checked one by one, each with an idea of its own of what it imports.
type key struct {
	pkg  string // import path
	name string // Function or Type.Method
}

// function is a function of the loaded packages, or a variable of package level
// with functions in its initial value.
type function struct {
	key
	pkgName string
	file    string          // below the root of the module
	body    bool            // false for one in assembly
	refs    []ref           // in the order of the source
	makes   map[string]bool // signatures of its function literals, which are its own part of a walk
	decl    *types.Func
}

// ref is what may call a function: its name (called, or handed on), a call of an
// interface's method, or a call of a value of function type: of a function that is
// handed on somewhere, or of a literal that a function makes.
type ref struct {
	pos     token.Pos
	loop    [2]token.Pos // the outermost loop around it: what stands there comes round again
	to      key
	methods map[string]string // of the interface; nil if it is none
	value   string            // the signature, for a call of a value
}

// program is the code of some packages.
type program struct {
	root      string
	functions map[key]*function
	values    map[key]bool // functions that are handed on as values
}

func importPath(dir string) string { return path.Join(module, dir) }

// load reads the packages of some directories, as for linux and amd64, where all
// vectorised kernels are. What they import is read from the build cache.
func load(root string, dirs []string) (*program, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	cfg := &packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
		Dir:  abs,
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		cfg.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	}
	var patterns []string
	for _, dir := range dirs {
		patterns = append(patterns, "./"+dir)
	}
	loaded, err := packages.Load(cfg, patterns...)
	if err != nil {
		return nil, err
	}
	p := &program{root: abs, functions: map[key]*function{}, values: map[key]bool{}}
	for _, pkg := range loaded {
		for _, e := range pkg.Errors {
			return nil, fmt.Errorf("%s: %w", pkg.PkgPath, e)
		}
		for _, file := range pkg.Syntax {
			p.read(pkg, file)
		}
		for _, file := range pkg.OtherFiles {
			if err := p.readAssembly(pkg.PkgPath, file); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

var (
	textLine = regexp.MustCompile(`^TEXT ·(\w+)\(SB\)`)
	jumpLine = regexp.MustCompile(`^\s*(?:JMP|CALL)\s+·(\w+)\(SB\)`)
)

// readAssembly adds to the functions of a package, declared in Go, what they call in
// a file in assembly.
func (p *program) readAssembly(pkgPath, file string) error {
	if filepath.Ext(file) != ".s" {
		return nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var f *function
	for line := range strings.Lines(string(text)) {
		if m := textLine.FindStringSubmatch(line); m != nil {
			f = p.functions[key{pkgPath, m[1]}]
		} else if m := jumpLine.FindStringSubmatch(line); m != nil && f != nil {
			f.refs = append(f.refs, ref{pos: token.Pos(len(f.refs) + 1), to: key{pkgPath, m[1]}})
		}
	}
	return nil
}

func (p *program) read(pkg *packages.Package, file *ast.File) {
	name, err := filepath.Rel(p.root, pkg.Fset.Position(file.Pos()).Filename)
	if err != nil {
		return // a file that cgo wrote
	}
	add := func(k key, body bool, decl *types.Func, n ast.Node) {
		f := &function{key: k, pkgName: pkg.Name, file: filepath.ToSlash(name), body: body, decl: decl}
		if n != nil {
			f.refs, f.makes = p.refs(pkg.TypesInfo, n), map[string]bool{}
			ast.Inspect(n, func(n ast.Node) bool {
				if literal, ok := n.(*ast.FuncLit); ok {
					f.makes[signature(pkg.TypesInfo.TypeOf(literal).(*types.Signature))] = true
				}
				return true
			})
		}
		p.functions[k] = f
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			f := pkg.TypesInfo.Defs[d.Name].(*types.Func)
			var body ast.Node
			if d.Body != nil {
				body = d.Body
			}
			add(keyOf(f), d.Body != nil, f, body)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				v, ok := spec.(*ast.ValueSpec)
				if !ok || d.Tok != token.VAR {
					continue
				}
				for _, id := range v.Names {
					add(key{pkg.PkgPath, id.Name}, true, nil, v)
				}
			}
		}
	}
}

// keyOf names a function: of a generic one, the one that is written down.
func keyOf(f *types.Func) key {
	f = f.Origin()
	k := key{name: f.Name()}
	if f.Pkg() != nil {
		k.pkg = f.Pkg().Path()
	}
	if recv := f.Signature().Recv(); recv != nil {
		t := recv.Type()
		if ptr, ok := t.(*types.Pointer); ok {
			t = ptr.Elem()
		}
		if named, ok := types.Unalias(t).(*types.Named); ok {
			k.name = named.Obj().Name() + "." + k.name
		}
	}
	return k
}

// refs lists what a body refers to, in the order of the source.
func (p *program) refs(info *types.Info, body ast.Node) []ref {
	var refs []ref
	var loops [][2]token.Pos // an outer one before those in it
	called := map[*ast.Ident]bool{}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			loops = append(loops, [2]token.Pos{n.Pos(), n.End()})
		case *ast.CallExpr:
			if id := calledName(n.Fun); id != nil {
				if _, ok := info.Uses[id].(*types.Func); ok {
					called[id] = true
					break
				}
			}
			if _, literal := ast.Unparen(n.Fun).(*ast.FuncLit); literal || info.Types[n.Fun].IsType() || info.Types[n.Fun].IsBuiltin() {
				break
			}
			if sig, ok := info.TypeOf(n.Fun).Underlying().(*types.Signature); ok {
				refs = append(refs, ref{pos: n.Pos(), value: signature(sig)})
			}
		case *ast.Ident:
			switch o := info.Uses[n].(type) {
			case *types.Func:
				r := ref{pos: n.Pos(), to: keyOf(o)}
				if recv := o.Signature().Recv(); recv != nil {
					if i, ok := recv.Type().Underlying().(*types.Interface); ok {
						r.methods = methodsOf(i)
						r.to = key{name: o.Name()}
					}
				}
				if !called[n] {
					p.values[r.to] = true
				}
				refs = append(refs, r)
			case *types.Var:
				if o.Pkg() != nil && o.Parent() == o.Pkg().Scope() {
					refs = append(refs, ref{pos: n.Pos(), to: key{o.Pkg().Path(), o.Name()}})
				}
			}
		}
		return true
	})
	for i, r := range refs {
		for _, loop := range loops {
			if loop[0] <= r.pos && r.pos < loop[1] {
				refs[i].loop = loop
				break
			}
		}
	}
	slices.SortStableFunc(refs, func(a, b ref) int { return int(a.pos - b.pos) })
	return refs
}

// calledName returns the identifier that a call names its function by.
func calledName(fun ast.Expr) *ast.Ident {
	switch f := ast.Unparen(fun).(type) {
	case *ast.Ident:
		return f
	case *ast.SelectorExpr:
		return f.Sel
	case *ast.IndexExpr:
		return calledName(f.X)
	case *ast.IndexListExpr:
		return calledName(f.X)
	}
	return nil
}

// methodsOf returns the signatures of an interface's methods, by name.
func methodsOf(i *types.Interface) map[string]string {
	methods := map[string]string{}
	for m := range i.Methods() {
		methods[m.Name()] = signature(m.Signature())
	}
	return methods
}

// signature writes types of parameters and results without names, packages by
// path: equal for equal types, whoever loaded them.
func signature(s *types.Signature) string {
	var b strings.Builder
	for i, vars := range []*types.Tuple{s.Params(), s.Results()} {
		b.WriteString("(")
		for v := range vars.Variables() {
			b.WriteString(typeName(v.Type()) + ",")
		}
		if i == 0 && s.Variadic() {
			b.WriteString("...")
		}
		b.WriteString(")")
	}
	return b.String()
}

// typeName writes a type, whatever it is an alias of.
func typeName(t types.Type) string {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return "*" + typeName(t.Elem())
	case *types.Slice:
		return "[]" + typeName(t.Elem())
	case *types.Signature:
		return "func" + signature(t)
	default:
		return types.TypeString(t, (*types.Package).Path)
	}
}

// reaches reports whether a reference may call f.
func (p *program) reaches(r ref, f *function) bool {
	switch {
	case r.methods != nil:
		return f.decl != nil && implements(f.decl, r.to.name, r.methods)
	case r.value != "":
		return f.makes[r.value] || f.decl != nil && p.values[f.key] && signature(f.decl.Signature()) == r.value
	}
	return r.to == f.key
}

// implements reports whether f is the method of that name of a type that has all
// of an interface's methods.
func implements(f *types.Func, name string, methods map[string]string) bool {
	recv := f.Signature().Recv()
	if recv == nil || f.Name() != name {
		return false
	}
	t := recv.Type()
	if _, ok := t.(*types.Pointer); !ok {
		t = types.NewPointer(t)
	}
	set := types.NewMethodSet(t)
	for want, sig := range methods {
		i := slices.IndexFunc(slices.Collect(set.Methods()), func(s *types.Selection) bool { return s.Obj().Name() == want })
		if i < 0 {
			return false
		}
		got := set.At(i).Obj().(*types.Func)
		if generic := f.Origin().Signature().RecvTypeParams() != nil; !generic && signature(got.Signature()) != sig {
			return false
		}
	}
	return true
}

// find returns the function that a step is about.
func (p *program) find(s step) (*function, error) {
	dir := path.Dir(s.file)
	pkgName, name, _ := strings.Cut(s.name, ".")
	f, ok := p.functions[key{importPath(dir), name}]
	switch {
	case !ok:
		return nil, fmt.Errorf("%s:%d: there is no function %s in %s: it is called otherwise now or has moved; name the one that does its work, with its file", page, s.line, name, dir)
	case pkgName != f.pkgName && pkgName != path.Base(dir):
		return nil, fmt.Errorf("%s:%d: %s is in package %s", page, s.line, s.name, f.pkgName)
	case path.Ext(s.file) == ".s":
		text, err := os.ReadFile(filepath.Join(p.root, filepath.FromSlash(s.file)))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", page, s.line, err)
		}
		if f.body || !strings.Contains(string(text), "TEXT ·"+name+"(") {
			return nil, fmt.Errorf("%s:%d: %s is not in %s", page, s.line, s.name, s.file)
		}
	case f.file != s.file:
		return nil, fmt.Errorf("%s:%d: %s is in %s, not in %s: go run ./internal/walks -w changes the link", page, s.line, s.name, f.file, s.file)
	}
	return f, nil
}

// follow goes along a walk: each step must be called by the one before it or,
// further on in its source or in the same loop, by one that called its way there. It returns, per
// step, who calls it.
func (p *program) follow(w walk) ([]string, error) {
	type frame struct {
		f    *function
		last token.Pos // of its call that the walk went into
	}
	var stack []frame
	var callers []string
	var wrong []error
	for _, s := range w.steps {
		f, err := p.find(s)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		caller := ""
		for depth := len(stack) - 1; depth >= 0; depth-- {
			at := &stack[depth]
			i := slices.IndexFunc(at.f.refs, func(r ref) bool {
				again := r.loop[0] < at.last && at.last < r.loop[1]
				return (r.pos > at.last || again) && p.reaches(r, f)
			})
			if i >= 0 {
				at.last, caller = at.f.refs[i].pos, at.f.String()
				stack = stack[:depth+1]
				break
			}
		}
		if caller == "" && len(stack) > 0 {
			top := stack[len(stack)-1].f
			wrong = append(wrong, fmt.Errorf("%s:%d: %q: %s is called neither by %s, which stands before it, nor further on by what called that; see what does: go run ./internal/walks %s %s",
				page, s.line, w.title, s.name, top, path.Dir(top.file), top.name))
			break // so that one mistake is one message
		}
		callers = append(callers, caller)
		stack = append(stack, frame{f: f})
	}
	return callers, errors.Join(wrong...)
}

func (f *function) String() string { return f.pkgName + "." + f.name }

// calls describes what of the module a function refers to, each once.
func (f *function) calls() []string {
	var texts []string
	for _, r := range f.refs {
		text := r.to.name
		switch {
		case r.methods != nil:
			text = "method " + r.to.name + " of an interface"
		case r.value != "":
			text = "a value of type func" + r.value
		case !strings.HasPrefix(r.to.pkg, module):
			continue
		default:
			text = strings.TrimPrefix(r.to.pkg, module+"/") + " " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}
