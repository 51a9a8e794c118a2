// Package vet has the analyzers of popefgen vet: what compiles, works and costs
// more than its author knows in code that uses generated packages.
package vet

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/types"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

// Analyzers are all analyzers.
var Analyzers = []*analysis.Analyzer{TensorCopy}

// TensorCopy reports copies of tensors that nobody asked for.
var TensorCopy = &analysis.Analyzer{
	Name: "tensorcopy",
	Doc: `report loops and parameters that copy a generated package's tensors

A tensor's Data is an array, and arrays are values: a range over it with two
variables copies the whole array before the first turn, and each row again.

	for _, row := range out.Scores.Data // copies
	for _, row := range out.Scores.Rows() // does not: row is a pointer

A parameter of a tensor's type, not of a pointer to it, copies the tensor with
every call.`,
	URL:      "https://github.com/popefgen/popefgen/blob/main/docs/generated-code.md#types",
	Requires: []*analysis.Analyzer{inspect.Analyzer},
	Run:      tensorCopy,
}

// worth is the size in bytes of a copy that is worth a word.
const worth = 1024

func tensorCopy(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	in.Preorder([]ast.Node{(*ast.RangeStmt)(nil), (*ast.FuncType)(nil)}, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.RangeStmt:
			checkRange(pass, n)
		case *ast.FuncType:
			checkParameters(pass, n)
		}
	})
	return nil, nil
}

// checkRange reports a range by value over the arrays of a tensor.
func checkRange(pass *analysis.Pass, s *ast.RangeStmt) {
	if v, ok := s.Value.(*ast.Ident); s.Value == nil || ok && v.Name == "_" {
		return // the array is not even evaluated
	}
	tensor := dataOf(pass, s.X)
	if tensor == nil {
		return
	}
	var whole, row int64 // bytes that are copied once, and with each turn
	elem := types.Type(nil)
	switch t := pass.TypesInfo.TypeOf(s.X).Underlying().(type) {
	case *types.Array:
		whole, elem = pass.TypesSizes.Sizeof(t), t.Elem()
	case *types.Slice:
		elem = t.Elem()
	case *types.Pointer:
		if a, ok := t.Elem().Underlying().(*types.Array); ok {
			elem = a.Elem()
		}
	}
	if elem == nil {
		return
	}
	_, rows := elem.Underlying().(*types.Array)
	if rows {
		row = pass.TypesSizes.Sizeof(elem)
	}
	if whole+row < worth {
		return
	}
	what := "the array"
	if whole == 0 {
		what = "each row"
	} else if rows {
		what = "the array, and each row again"
	}
	text := source(pass, s.X)
	d := analysis.Diagnostic{Pos: s.X.Pos(), End: s.X.End()}
	sel, direct := ast.Unparen(s.X).(*ast.SelectorExpr)
	method, _, _ := types.LookupFieldOrMethod(types.NewPointer(tensor), true, pass.Pkg, "Rows")
	switch {
	case rows && direct && method != nil:
		better := source(pass, sel.X) + ".Rows()"
		d.Message = fmt.Sprintf("range over %s copies %s (%d bytes); range over %s, whose rows are pointers", text, what, max(whole, row), better)
		d.SuggestedFixes = []analysis.SuggestedFix{{Message: "range over pointers to the rows",
			TextEdits: []analysis.TextEdit{{Pos: s.X.Pos(), End: s.X.End(), NewText: []byte(better)}}}}
	case rows:
		d.Message = fmt.Sprintf("range over %s copies %s (%d bytes); range over the index, or over rt.Rows of a slice of it", text, what, max(whole, row))
	default:
		d.Message = fmt.Sprintf("range over %s copies %s (%d bytes); range over &%s", text, what, whole, text)
		d.SuggestedFixes = []analysis.SuggestedFix{{Message: "range over a pointer to the array",
			TextEdits: []analysis.TextEdit{{Pos: s.X.Pos(), End: s.X.Pos(), NewText: []byte("&")}}}}
	}
	pass.Report(d)
}

// dataOf returns the tensor's type if e is the Data of one or a part of it, in
// place: through indices, slices and pointers.
func dataOf(pass *analysis.Pass, e ast.Expr) *types.Named {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.UnaryExpr:
			e = x.X
		case *ast.SelectorExpr:
			if x.Sel.Name != "Data" {
				return nil
			}
			return tensorType(pass.TypesInfo.TypeOf(x.X))
		default:
			return nil
		}
	}
}

// tensorType returns t if it is a tensor of a generated package, or a pointer
// to one.
func tensorType(t types.Type) *types.Named {
	if t == nil {
		return nil
	}
	if p, ok := t.Underlying().(*types.Pointer); ok {
		t = p.Elem()
	}
	named, ok := types.Unalias(t).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return nil
	}
	scope := named.Obj().Pkg().Scope()
	_, pinned := scope.Lookup("ContractHash").(*types.Const)
	_, runs := scope.Lookup("Runner").(*types.TypeName)
	s, isStruct := named.Underlying().(*types.Struct)
	if !pinned || !runs || !isStruct || s.NumFields() != 1 || s.Field(0).Name() != "Data" {
		return nil
	}
	return named
}

// checkParameters reports parameters and results that are tensors by value.
func checkParameters(pass *analysis.Pass, f *ast.FuncType) {
	for _, list := range []*ast.FieldList{f.Params, f.Results} {
		if list == nil {
			continue
		}
		for _, p := range list.List {
			t := pass.TypesInfo.TypeOf(p.Type)
			if t == nil {
				continue
			}
			if _, pointer := t.Underlying().(*types.Pointer); pointer || tensorType(t) == nil {
				continue
			}
			if size := pass.TypesSizes.Sizeof(t); size >= worth {
				text := source(pass, p.Type)
				pass.Reportf(p.Type.Pos(), "%s copies %d bytes with every call; use *%s", text, size, text)
			}
		}
	}
}

// source is an expression as it stands in the file.
func source(pass *analysis.Pass, e ast.Expr) string {
	var b bytes.Buffer
	if err := format.Node(&b, pass.Fset, e); err != nil {
		return "the tensor"
	}
	return b.String()
}
