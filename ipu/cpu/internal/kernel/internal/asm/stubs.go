package main

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"

	"github.com/mmcloughlin/avo/ir"
)

// stub is the Go declaration of a function in assembly.
type stub struct {
	name      string
	operation string // which has the plain loop
	tile      tileOf // if the operation has several
	signature string // after the name
}

// stubsOf returns the declarations of a file's functions.
func (a *asm) stubsOf(file *ir.File) []stub {
	var s []stub
	for _, f := range file.Functions() {
		signature := f.Signature.String()
		if args, ok := a.argsOf[f.Name]; ok {
			signature = "(args *" + args + ")"
		}
		one := stub{name: f.Name, operation: strings.TrimSuffix(f.Name, a.name), signature: grouped(signature)}
		if t, ok := a.tiles[f.Name]; ok {
			one.operation, one.tile = t.operation, t
		}
		s = append(s, one)
	}
	return s
}

// grouped writes parameters of the same type that follow each other with one
// type.
func grouped(signature string) string {
	list, rest, _ := strings.Cut(strings.TrimPrefix(signature, "("), ")")
	all := strings.Split(list, ", ")
	for i, p := range all[:len(all)-1] {
		name, typ, _ := strings.Cut(p, " ")
		if _, next, _ := strings.Cut(all[i+1], " "); next == typ {
			all[i] = name
		}
	}
	return "(" + strings.Join(all, ", ") + ")" + rest
}

// declare returns the file that declares functions in assembly for a package.
// What each computes is its comment.
func declare(pkg string, stubs []stub) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\npackage %s\n", header, pkg)
	for _, s := range stubs {
		plain, ok := plains[s.operation]
		if !ok {
			return nil, fmt.Errorf("%s has no plain loop that says what it computes (plain.go)", s.operation)
		}
		fmt.Fprintf(&b, "\n// %s computes\n//\n", s.name)
		for line := range strings.SplitSeq(s.tile.plainOf(plain), "\n") {
			fmt.Fprintf(&b, "//\t%s\n", line)
		}
		if strings.Contains(s.signature, "*") {
			b.WriteString("//\n//go:noescape\n")
		}
		fmt.Fprintf(&b, "func %s%s\n", s.name, s.signature)
	}
	return format.Source(b.Bytes())
}
