package op

import "github.com/popefgen/popefgen/onnx/internal/lower"

// call is a node being lowered, with what several families do with one.
type call struct{ *lower.Call }

// lowerFunc lowers one node, as [lower.Func] does.
type lowerFunc func(c *call) []*lower.Value

// definition is a [lower.Definition] whose forms are lowered by a lowerFunc.
type definition struct{ lower.Definition }

func takes(operands string) definition { return definition{lower.Takes(operands)} }

func (d definition) since(version int64, f lowerFunc, attrs ...string) definition {
	return definition{d.Definition.Since(version, func(c *lower.Call) []*lower.Value { return f(&call{c}) }, attrs...)}
}

func (d definition) taking(operands string) definition {
	return definition{d.Definition.Taking(operands)}
}

func (d definition) droppedIn(version int64) definition {
	return definition{d.Definition.DroppedIn(version)}
}
