package onnx

// Operator is an operator that can be lowered.
type Operator struct {
	Domain string // "" for ONNX's own
	Name   string
	// Forms are what the operator is from some version on, ascending. Versions
	// between them differ in wording or in the element types that they permit.
	Forms []Form
	// Dropped is the version in which the operator set dropped it, or 0.
	Dropped int64
}

// Form is what an operator is from one version of its operator set on.
type Form struct {
	Version int64
	// Operands names the operands with the sets of element types that they may
	// have, as in "data, updates: any; indices: int32, int64". Those named
	// together have the same type. The sets are those of package onnx/compile's TypeSets. It is empty
	// if there are none.
	Operands string
	// Attributes names the attributes with their defaults or types, as in
	// "axis=-1 axes:ints shape:ints!"; one with '!' must be given.
	Attributes string
}
