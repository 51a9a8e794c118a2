// Package plainyaml reads YAML that people write: a file that would take very long
// or very much memory is refused, and what is wrong is said with its line, its key
// and words of YAML.
package plainyaml

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Advice is what errors say of the fields of a kind of file.
type Advice struct {
	// Fields says where all fields are listed, for one that there is not; or "".
	Fields string
	// Wants says what the value at a path such as models[].model may be, where its
	// Go type does not.
	Wants map[string]string
}

// File is where the values of a file stand.
type File struct{ file *ast.File }

// Decode reads data into the struct that to points to, which has a field for
// each key that data may have.
func Decode(data []byte, to any, a Advice) (File, error) {
	if err := readable(data); err != nil {
		return File{}, err
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return File{}, a.plain(nil, err)
	}
	if err := fewAliases(file, len(data)); err != nil {
		return File{}, err
	}
	if err := yaml.UnmarshalWithOptions(data, to, yaml.Strict()); err != nil {
		return File{}, a.plain(file, err)
	}
	return File{file}, nil
}

// Line returns the line, from 1, on which the value at a YAML path such as
// $.models[0] begins; 1 if there is none.
func (f File) Line(at string) int {
	path, err := yaml.PathString(at)
	if err != nil {
		return 1
	}
	node, err := path.FilterFile(f.file)
	if err != nil {
		return 1
	}
	if m, ok := node.(*ast.MappingNode); ok && len(m.Values) > 0 {
		node = m.Values[0].Key
	}
	return node.GetToken().Position.Line
}

// plain returns an error whose text has the line and what is wrong, not the
// colours of a terminal. What is wrong with a value it says in words of YAML,
// with the value's key.
func (a Advice) plain(file *ast.File, err error) error {
	var (
		mistyped *yaml.TypeError
		large    *yaml.OverflowError
		shaped   *yaml.UnexpectedNodeTypeError
		at       *token.Token
		want     string
	)
	switch {
	case errors.As(err, &mistyped):
		at, want = mistyped.Token, wantedType(mistyped.DstType)
	case errors.As(err, &large):
		at, want = large.Token, wantedType(large.DstType)+" of 64 bits"
	case errors.As(err, &shaped):
		at, want = shaped.Token, wantedNode(shaped.Expected)
	}
	if at == nil {
		text := strings.TrimSpace(yaml.FormatError(err, false, true))
		if unknown := (*yaml.UnknownFieldError)(nil); errors.As(err, &unknown) && a.Fields != "" {
			text += "\nhint: " + a.Fields
		}
		return errors.New(text)
	}
	key, found := valueAt(file, at)
	if key == "" {
		key = "the file"
	}
	if w, ok := a.Wants[index.ReplaceAllString(key, "[]")]; ok {
		want = w
	}
	return errors.New(strings.TrimSpace(yaml.FormatErrorWithToken(fmt.Sprintf("%s: found %s, want %s", key, found, want), at, false, true)))
}

// index is the place of an element of a list, in a path.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// wantedType says what value fits a type.
func wantedType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.String:
		return "text"
	case reflect.Slice:
		return wantedNode(ast.SequenceType)
	}
	return wantedNode(ast.MappingType)
}

// wantedNode says what a kind of YAML is called.
func wantedNode(t ast.NodeType) string {
	switch t {
	case ast.MappingType, ast.MappingValueType:
		return "keys with values"
	case ast.SequenceType:
		return "a list"
	}
	return strings.ToLower(t.String())
}

// valueAt returns the keys that lead to the value that begins with a token,
// such as models[0].queue, and what it is.
func valueAt(file *ast.File, at *token.Token) (key, found string) {
	found = strconv.Quote(at.Value)
	if file == nil {
		return "", found
	}
	for _, doc := range file.Docs {
		ast.Walk(visitor(func(n ast.Node) {
			if p := n.GetToken().Position; p.Line != at.Position.Line || p.Column != at.Position.Column {
				return
			}
			key = strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), ".")
			switch n.Type() {
			case ast.MappingType, ast.MappingValueType, ast.SequenceType:
				found = wantedNode(n.Type())
			}
		}), doc.Body)
	}
	return key, found
}

// visitor calls a function with every node.
type visitor func(ast.Node)

// Visit implements [ast.Visitor].
func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}
