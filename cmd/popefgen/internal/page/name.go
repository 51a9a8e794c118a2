package page

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/popefgen/popefgen/ipu/graph"
)

// maxNesting bounds how many levels of groups a name can make.
const maxNesting = 32

// splitName splits a node's name where frameworks join the names of modules,
// into those and the node's own. Numbers behind the last separator count the
// nodes of a kind ("Add.2") and belong to the name.
func splitName(name string) (path []string, leaf string) {
	name = joinedName(name)
	sep := "/"
	if !strings.Contains(name, sep) {
		sep = "."
	}
	parts := strings.SplitN(strings.Trim(name, sep), sep, maxNesting+1)
	n := len(parts) - 1
	leaf = parts[n]
	if n > 0 && !strings.ContainsFunc(leaf, unicode.IsLetter) {
		n--
		leaf = parts[n] + sep + leaf
	}
	return levels(parts[:n]), leaf
}

// joinedName is the first of names that a converter joined: with ";", or with
// "_" before a name that begins with the same module again.
func joinedName(name string) string {
	name, _, _ = strings.Cut(name, ";")
	if first, rest, ok := strings.Cut(name, "/"); ok && len(first) > 3 {
		if at := strings.Index(rest, "_"+first+"/"); at > 0 {
			return first + "/" + rest[:at]
		}
	}
	return name
}

// numberedBlock is the name of a layer that begins with its block's:
// block_3_expand of block_3.
var numberedBlock = regexp.MustCompile(`^([A-Za-z]+(?:_[A-Za-z]+)*_?\d+)_[A-Za-z]`)

// levels makes every module's name say what it is: numbers go behind the name
// of the list that they count in.
func levels(parts []string) []string {
	var out []string
	for i, p := range parts {
		if p == "" {
			continue
		}
		switch {
		case strings.ContainsFunc(p, unicode.IsLetter):
		case i > 0 && strings.HasPrefix(p, parts[i-1]+"."), len(out) == 0:
			p = "module " + p
		default:
			p = out[len(out)-1] + "." + p
		}
		if m := numberedBlock.FindStringSubmatch(p); m != nil {
			out = append(out, m[1])
		}
		out = append(out, p)
	}
	return out
}

// modulePath is what the name of a weight, such as layer1.0.conv1.weight, says
// about the module that it belongs to.
var modulePath = regexp.MustCompile(`^[A-Za-z_]\w*([./]\w+)+$`)

// pathOf tells the modules around an operator, by its name or, where that says
// nothing, by the name of its weights.
func (b *builder) pathOf(x *box) []string {
	if path, _ := splitName(x.Name); len(path) > 0 {
		return path
	}
	for _, t := range x.inputs {
		if t == graph.None {
			continue
		}
		if s := b.weights.of[t]; s != nil && len(s.names) > 0 {
			if modulePath.MatchString(s.names[0]) {
				parts := strings.FieldsFunc(s.names[0], func(r rune) bool { return r == '.' || r == '/' })
				parts = parts[:min(len(parts), maxNesting+1)]
				return levels(parts[:len(parts)-1])
			}
		}
	}
	return nil
}

// inherit gives operators whose names say nothing the path of those around
// them, if these have any: an elementwise one belongs to what it reads, one
// that only looks at a tensor in another way, between two modules, to the one
// that reads it, any other to what both have in common.
func inherit(d *drawing) {
	from, to := map[*box][]*box{}, map[*box]*box{}
	for _, e := range d.edges {
		if e.from.node >= 0 {
			from[e.to] = append(from[e.to], e.from)
		}
		if to[e.from] == nil && e.to.node >= 0 {
			to[e.from] = e.to
		}
	}
	module := func(b *box) []string { // around the operator's own
		if b == nil || b.inherits || len(b.path) == 0 {
			return b.pathOrNil()
		}
		return b.path[:len(b.path)-1]
	}
	var visit func(*box)
	visit = func(b *box) {
		for _, k := range b.Kids {
			visit(k)
			if k.node < 0 || len(k.path) > 0 {
				continue
			}
			k.inherits = true
			var before []string
			for _, f := range from[k] { // of a way around a module and its own, the latter
				if p := module(f); len(p) > len(before) {
					before = p
				}
			}
			if k.Family == "element" || k.Family == "norm" {
				k.path = before
				continue
			}
			next := to[k]
			for range 8 {
				if next == nil || len(next.path) > 0 {
					break
				}
				next = to[next]
			}
			after := module(next)
			n := common(before, after)
			k.path = before[:n]
			if (n == 0 || n < min(len(before), len(after))) && viewKinds[k.Title] && from[k] != nil { // between two modules
				k.path = after
			}
		}
	}
	visit(d.root)
	// What all paths have in common says nothing of any box.
	var all []string
	nodes := leaves(d.root.Kids)
	for _, k := range nodes {
		if len(k.path) > 0 && all == nil {
			all = k.path
		} else if len(k.path) > 0 {
			all = all[:common(all, k.path)]
		}
	}
	d.root.path = all
	for _, k := range nodes {
		if len(k.path) == 0 {
			k.path = all
		}
	}
}

func (b *box) pathOrNil() []string {
	if b == nil {
		return nil
	}
	return b.path
}

// plainWords are names that say no more than what an operator does.
var plainWords = func() map[string]bool {
	m := map[string]bool{}
	for _, k := range graph.Kinds() {
		m[strings.ToLower(k)] = true
	}
	for _, w := range strings.Fields(`relu relu6 sigmoid tanh gelu silu elu selu erf exp log sqrt neg abs add sub mul div pow max min sum mean plus times
		equal less greater and or not squeeze unsqueeze flatten identity split shape constant cast clip biasadd bias conv2d conv1d linear dense matmul
		batchnormalization batchnorm fusedbatchnorm fusedbatchnormv3 layernormalization layernorm pooling maxpool maxpool2d averagepool globalaveragepool avgpool
		reducemean reducemax reducesum dequantizelinear quantizelinear depthwise node op getitem view permute transpose addmm call function`) {
		m[w] = true
	}
	return m
}()

// tells reports whether a node's own name says more than its kind and a number.
func tells(leaf string) bool {
	s := strings.TrimPrefix(strings.ToLower(leaf), "node_")
	s = strings.TrimRightFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
	s = strings.TrimRightFunc(strings.TrimSuffix(s, "_t"), func(r rune) bool { return !unicode.IsLetter(r) })
	s = strings.ReplaceAll(s, "_", "")
	return len(s) > 2 && !plainWords[s]
}

// shortName is the part of an operator's name that neither the groups around
// it nor what it does say already.
func (b *box) shortName() string {
	path, leaf := splitName(b.Name)
	if len(path) == 0 && !b.inherits { // named by its weights
		path = b.path
	}
	for p := b.parent; p != nil; p = p.parent {
		if len(p.path) > 0 {
			path = path[common(path, p.path):]
			break
		}
	}
	path = slices.DeleteFunc(slices.Clone(path), func(s string) bool { // layer1.0 says layer1
		return slices.ContainsFunc(path, func(t string) bool { return strings.HasPrefix(t, s+".") })
	})
	if tells(leaf) {
		path = append(path, leaf)
	}
	return strings.TrimPrefix(strings.Join(path, "/"), "module ")
}
