package onnx

// encodeModel returns the file of a model. Tests build models as structs; the
// seeds of fuzz tests are files.
func encodeModel(m *Model) []byte {
	p := pb{}.int(1, m.IRVersion)
	for _, o := range m.Opsets {
		p = p.bytes(8, pb{}.str(1, o.Domain).int(2, o.Version))
	}
	for _, f := range m.Functions {
		b := pb{}.str(1, f.Name).str(10, f.Domain)
		for _, s := range f.Inputs {
			b = b.str(4, s)
		}
		for _, s := range f.Outputs {
			b = b.str(5, s)
		}
		for _, n := range f.Nodes {
			b = b.bytes(7, encodeNode(n))
		}
		p = p.bytes(25, b)
	}
	return p.bytes(7, encodeGraph(m.Graph))
}

func encodeGraph(g *Graph) pb {
	p := pb{}.str(2, g.Name)
	for _, n := range g.Nodes {
		p = p.bytes(1, encodeNode(n))
	}
	for _, t := range g.Initializers {
		p = p.bytes(5, encodeTensor(t))
	}
	for _, v := range g.Inputs {
		p = p.bytes(11, encodeValue(v))
	}
	for _, v := range g.Outputs {
		p = p.bytes(12, encodeValue(v))
	}
	return p
}

func encodeNode(n *Node) pb {
	p := pb{}.str(3, n.Name).str(4, n.OpType).str(7, n.Domain)
	for _, s := range n.Inputs {
		p = p.str(1, s)
	}
	for _, s := range n.Outputs {
		p = p.str(2, s)
	}
	for _, a := range n.Attributes {
		b := pb{}.str(1, a.Name).int(20, int64(a.Type))
		switch a.Type {
		case AttrFloat:
			b = b.float(2, a.Float)
		case AttrInt:
			b = b.int(3, a.Int)
		case AttrString:
			b = b.bytes(4, a.String)
		case AttrTensor:
			b = b.bytes(5, encodeTensor(a.Tensor))
		case AttrGraph:
			b = b.bytes(6, encodeGraph(a.Graph))
		case AttrFloats:
			for _, f := range a.Floats {
				b = b.float(7, f)
			}
		case AttrInts:
			b = b.packed(8, a.Ints...)
		}
		p = p.bytes(5, b)
	}
	return p
}

// encodeTensor packs elements of less than a byte as files have them.
func encodeTensor(t *Tensor) pb {
	data := t.Data
	if per := elementsPerByte(t.Elem); per > 1 {
		data = make([]byte, (len(t.Data)+per-1)/per)
		for i, b := range t.Data {
			data[i/per] |= b & (1<<(8/per) - 1) << (i % per * (8 / per))
		}
	}
	return pb{}.str(8, t.Name).int(2, int64(t.Elem)).packed(1, t.Dims...).bytes(9, data)
}

func encodeValue(v ValueInfo) pb {
	tensor := pb{}.int(1, int64(v.Elem))
	if v.HasShape {
		shape := pb{}
		for _, d := range v.Dims {
			dim := pb{}.str(2, d.Symbol)
			if d.Known {
				dim = pb{}.int(1, d.Value)
			}
			shape = shape.bytes(1, dim)
		}
		tensor = tensor.bytes(2, shape)
	}
	return pb{}.str(1, v.Name).bytes(2, pb{}.bytes(1, tensor))
}
