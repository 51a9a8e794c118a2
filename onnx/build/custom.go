package build

import "fmt"

// Custom adds a node of an operator that no table has, by its domain, the version of the domain's operator set, and its name: what another compiler or a library of custom operators knows. Operands may be nil. It has so many results, all of which
// are written. Attributes are [Attribute] and [Subgraph]. What such a node computes is not known here: the types of outputs behind it have to be declared ([Builder.Declare]).
func (b *Builder) Custom(domain string, version int64, operator string, operands Tensors, results int, options ...NodeOption) Tensors {
	if !b.usable() {
		return make(Tensors, min(max(results, 0), mostResults))
	}
	c := &call{b: b, place: here("Custom"), node: &node{domain: domain, operator: operator}}
	switch {
	case operator == "":
		c.fail("the operator has no name")
	case !b.usableName(c.place, domain) || !b.usableName(c.place, operator):
		c.wrong = true
	case domain == "" || domain == "ai.onnx":
		c.fail("operator %s without a domain of its own: ONNX's operators are methods of the Builder", operator)
	case version < 1:
		c.fail("version %d of domain %q, want one from 1 on", version, domain)
	case b.opsets[domain] != 0 && b.opsets[domain] != version:
		c.fail("version %d of domain %q, of which the model has nodes of version %d: a model imports one version of a domain", version, domain, b.opsets[domain])
	}
	c.apply(optionsOf(options))
	for i, t := range operands {
		if t != nil {
			c.operand(fmt.Sprintf("operands[%d]", i), t)
		}
		c.node.in = append(c.node.in, t)
	}
	list := c.results(results, results)
	if !c.wrong && !c.poisoned {
		b.opsets[domain] = version
	}
	return list
}
