package plainyaml

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml/ast"
)

// Bounds on a file, far above what people write.
const (
	maxBytes   = 1 << 20  // bytes
	maxNested  = 32       // lists and maps inside each other, in one line
	maxAliased = 16 << 20 // bytes, if each alias stood for the whole file
)

// readable refuses text that a parser of YAML would take very long for: lists
// and maps inside each other without end.
func readable(data []byte) error {
	if len(data) > maxBytes {
		return fmt.Errorf("it has %d bytes, want %d at most", len(data), maxBytes)
	}
	depth := 0
	for number, line := range bytes.Split(data, []byte{'\n'}) {
		items := 0
		for bytes.HasPrefix(line[min(2*items, len(line)):], []byte("- ")) {
			items++
		}
		quote := byte(0)
		for i, c := range line {
			switch {
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case (c == '"' || c == '\'') && (i == 0 || bytes.IndexByte([]byte(" [{,:"), line[i-1]) >= 0):
				quote = c
			case c == '#' && (i == 0 || line[i-1] == ' '):
				quote = '\n' // to the end
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				depth = max(0, depth-1)
			}
			if max(depth, items) > maxNested {
				return fmt.Errorf("line %d: more than %d lists and maps inside each other", number+1, maxNested)
			}
		}
	}
	return nil
}

// fewAliases refuses aliases that make values large: those of a value that has
// aliases itself, each of which makes it some times as large, and very many of a
// large one. The file has size bytes.
func fewAliases(file *ast.File, size int) error {
	aliases := 0
	for _, doc := range file.Docs {
		aliases += len(nodesOf(ast.AliasType, doc.Body))
		for _, n := range nodesOf(ast.AnchorType, doc.Body) {
			inner := nodesOf(ast.AliasType, n.(*ast.AnchorNode).Value)
			if len(inner) == 0 {
				continue
			}
			return fmt.Errorf("line %d: an alias within a value that has an anchor: write it out", inner[0].GetToken().Position.Line)
		}
	}
	if aliases > maxAliased/max(1, size) {
		return fmt.Errorf("it has %d bytes and %d aliases: write some out", size, aliases)
	}
	return nil
}

// nodesOf returns the nodes of a kind within n, which is nil for what a document of
// white space, or an anchor without a value, holds.
func nodesOf(kind ast.NodeType, n ast.Node) []ast.Node {
	if n == nil {
		return nil
	}
	return ast.Filter(kind, n)
}
