package templates

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"
)

// Go lists the templates of Go source: files, or declarations for one.
func Go() []string { return []string{Runner, Queues, Tests} }

// Arms renders a template with data as often as it takes to go through every
// branch of it and of those that it calls, whatever conditions say: what it may
// declare stands in one of the texts. It is an error if data has nothing that a
// range or with can go through, since what stands there would be missing.
func Arms(name string, data any) ([]string, error) { return arms(all, name, data) }

func arms(all *template.Template, name string, data any) (texts []string, err error) {
	went := map[arm]bool{}
	for len(texts) == 0 || (&walk{all: all, went: went}).open(name) {
		before := len(went)
		text, err := (&walk{all: all, went: went}).render(name, data)
		if err == nil && len(texts) > 0 && len(went) == before {
			err = errors.New("one of them can't be reached")
		}
		if err != nil {
			return nil, fmt.Errorf("going through the branches of %s: %w", name, err)
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// arm is a branch of an if, a range or a with.
type arm struct {
	template string
	at       parse.Pos // of the if
	els      bool      // what stands behind its else
}

// walk is one way through a template and those that it calls.
type walk struct {
	all   *template.Template
	went  map[arm]bool    // arms of this and of earlier walks
	seen  map[string]bool // templates that it came to
	marks []string        // what must be executed, as messages that say where
}

// enter returns the tree of a template to which the walk comes for the first time.
func (w *walk) enter(name string) *parse.Tree {
	if t := w.all.Lookup(name); t != nil && t.Tree != nil && !w.seen[name] {
		if w.seen == nil {
			w.seen = map[string]bool{}
		}
		w.seen[name] = true
		return t.Tree
	}
	return nil // what is missing, executing it says
}

// branch returns the part that if, range and with have in common.
func branch(n parse.Node) *parse.BranchNode {
	switch n := n.(type) {
	case *parse.IfNode:
		return &n.BranchNode
	case *parse.RangeNode:
		return &n.BranchNode
	case *parse.WithNode:
		return &n.BranchNode
	}
	return nil
}

// open reports whether a template has an arm that no walk went through.
func (w *walk) open(name string) bool {
	t := w.enter(name)
	return t != nil && w.openIn(name, t.Root)
}

func (w *walk) openIn(name string, l *parse.ListNode) bool {
	return l != nil && slices.ContainsFunc(l.Nodes, func(n parse.Node) bool {
		if call, ok := n.(*parse.TemplateNode); ok {
			return w.open(call.Name)
		}
		b := branch(n)
		return b != nil && (w.openArm(name, b, false) || w.openArm(name, b, true))
	})
}

func (w *walk) openArm(name string, b *parse.BranchNode, els bool) bool {
	l := b.List
	if els {
		l = b.ElseList
	}
	return l != nil && (!w.went[arm{name, b.Pos, els}] || w.openIn(name, l))
}

// render executes a template on a way through arms that are new where there are any.
func (w *walk) render(name string, data any) (string, error) {
	all, err := w.all.Clone()
	if err != nil {
		return "", err
	}
	through := map[int]bool{}
	all.Funcs(template.FuncMap{"through": func(mark int) string { through[mark] = true; return "" }})
	w.decide(all, name)
	var b strings.Builder
	if err := all.ExecuteTemplate(&b, name, data); err != nil {
		return "", err
	}
	for i, where := range w.marks {
		if !through[i] {
			return "", fmt.Errorf("%s: the data has nothing for it", where)
		}
	}
	return b.String(), nil
}

// decide replaces every condition of a template in all by one of its arms.
func (w *walk) decide(all *template.Template, name string) {
	t := w.enter(name)
	if t == nil {
		return
	}
	t = t.Copy()
	w.decideIn(all, name, t.Root)
	template.Must(all.AddParseTree(name, t))
}

func (w *walk) decideIn(all *template.Template, name string, l *parse.ListNode) {
	var nodes []parse.Node
	for _, n := range l.Nodes {
		if call, ok := n.(*parse.TemplateNode); ok {
			w.decide(all, call.Name)
		}
		b := branch(n)
		if b == nil {
			nodes = append(nodes, n)
			continue
		}
		ahead := &walk{all: w.all, went: w.went, seen: maps.Clone(w.seen)}
		els := !ahead.openArm(name, b, false) && ahead.openArm(name, b, true)
		w.went[arm{name, b.Pos, els}] = true
		if els {
			w.decideIn(all, name, b.ElseList)
			nodes = append(nodes, b.ElseList.Nodes...)
			continue
		}
		w.decideIn(all, name, b.List)
		if n.Type() == parse.NodeIf {
			nodes = append(nodes, b.List.Nodes...)
			continue
		}
		mark := template.Must(template.New("").Funcs(template.FuncMap{"through": func(int) string { return "" }}).Parse(fmt.Sprintf("{{through %d}}", len(w.marks))))
		w.marks = append(w.marks, fmt.Sprintf("%s:%d: %s", name, b.Line, b.Pipe))
		b.List.Nodes = slices.Insert(b.List.Nodes, 0, mark.Tree.Root.Nodes[0])
		b.ElseList = nil
		nodes = append(nodes, n)
	}
	l.Nodes = nodes
}
