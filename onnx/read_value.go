package onnx

import "google.golang.org/protobuf/encoding/protowire"

func (r *reader) value(v view) (ValueInfo, error) {
	var vi ValueInfo
	err := r.fields(v, "value info", func(f field) (err error) {
		switch f.num {
		case 1:
			vi.Name, err = f.str()
		case 2:
			if _, err = sub(f, func(v view) (struct{}, error) { return struct{}{}, r.valueType(v, &vi) }); vi.NotDense != "" && err == nil {
				err = r.keep(&vi.Other, f)
			}
		default:
			err = r.keep(&vi.Other, f)
		}
		return err
	})
	return vi, err
}

var notDense = map[protowire.Number]string{4: "sequence", 5: "map", 7: "opaque", 8: "sparse tensor", 9: "optional"}

func (r *reader) valueType(v view, vi *ValueInfo) error {
	return r.fields(v, "type", func(f field) error {
		if f.num != 1 {
			if k := notDense[f.num]; k != "" {
				vi.NotDense = k
				return nil
			}
			return r.keep(&vi.Meaning, f)
		}
		_, err := sub(f, func(v view) (struct{}, error) {
			return struct{}{}, r.fields(v, "tensor type", func(f field) (err error) {
				switch f.num {
				case 1:
					var e int64
					e, err = f.int()
					vi.Elem = ElemType(e)
				case 2:
					vi.HasShape = true
					vi.Dims, err = sub(f, r.shape)
				}
				return err
			})
		})
		return err
	})
}

func (r *reader) shape(v view) ([]Dim, error) {
	dims := []Dim{}
	err := r.fields(v, "shape", func(f field) error {
		if f.num != 1 {
			return nil
		}
		d, err := sub(f, func(v view) (Dim, error) {
			var d Dim
			err := r.fields(v, "dimension", func(f field) (err error) {
				switch f.num {
				case 1:
					d.Known = true
					if d.Value, err = f.int(); err == nil && d.Value < 0 {
						d = Dim{Denotation: d.Denotation} // some exporters write -1 for "unknown"
					}
				case 2:
					d.Symbol, err = f.str()
				case 3:
					d.Denotation, err = f.str()
				}
				return err
			})
			return d, err
		})
		dims = append(dims, d)
		return err
	})
	return dims, err
}
