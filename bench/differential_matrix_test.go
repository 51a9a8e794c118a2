package main

import (
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/onnx"
)

// matrixSketches are products of matrices and what contains them.
var matrixSketches = map[string]func(*sketch){
	"MatMul": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		batch := s.dims(s.IntN(3), 3)
		other := slices.Clone(batch[s.IntN(len(batch)+1):])
		for i := range other {
			if s.rare() {
				other[i] = 1
			}
		}
		a, b := append(batch, m, k), append(other, k, n)
		switch s.IntN(6) {
		case 0:
			a = []int{k}
		case 1:
			b = []int{k}
		}
		e := pick(s, f32, f32, onnx.Double, onnx.Int32)
		s.output(s.node("MatMul", 1, nil, s.input(e, a, s.whole), s.input(e, b, s.whole))[0], e)
	},
	"Gemm": func(s *sketch) {
		m, k, n := 1+s.IntN(7), 1+s.IntN(20), 1+s.IntN(20)
		at := attrs{"transA": s.IntN(2), "transB": s.IntN(2)}
		if s.coin() {
			at["alpha"] = 0.5
		}
		if s.coin() {
			at["beta"] = pick(s, 2, 0, 0.25)
		}
		a, b := []int{m, k}, []int{k, n}
		if at["transA"] == 1 {
			a = []int{k, m}
		}
		if at["transB"] == 1 {
			b = []int{n, k}
		}
		ops := []string{s.input(f32, a, s.normal), s.input(f32, b, s.normal)}
		if s.coin() {
			ops = append(ops, s.input(f32, pick(s, []int{m, n}, []int{n}, []int{1, n}, []int{m, 1}, []int{1}, []int{1, 1}), s.normal))
		}
		s.output(s.node("Gemm", 1, at, ops...)[0], f32)
	},
	"Einsum": func(s *sketch) {
		eq := pick(s, "ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "ij,ij->", "i,j->ij", "bhid,bhjd->bhij", "...ij,...jk->...ik", "abc,cd->abd", "ab,bc,cd->ad", "ij,kj->ik", "bij->bi", "ijk->kij", "ab,ab->a", "ij,jk")
		ins, _, _ := strings.Cut(eq, "->")
		size := map[rune]int{}
		var ops []string
		for _, term := range strings.Split(ins, ",") {
			var dims []int
			if rest, ok := strings.CutPrefix(term, "..."); ok {
				dims, term = append(dims, 2, 3), rest
			}
			for _, r := range term {
				if size[r] == 0 {
					size[r] = 1 + s.IntN(5)
				}
				dims = append(dims, size[r])
			}
			ops = append(ops, s.input(f32, dims, s.normal))
		}
		s.output(s.node("Einsum", 1, attrs{"equation": eq}, ops...)[0], f32)
	},
	"Products": func(s *sketch) { // matrix products with what exporters put around them
		m, k := 1+s.IntN(9), 1+s.IntN(20)
		batch := s.dims(s.IntN(3), 3)
		x, dims := s.input(f32, append(slices.Clone(batch), m, k), s.normal), append(batch, m, k)
		for range 1 + s.IntN(4) {
			last := dims[len(dims)-1]
			switch s.IntN(7) {
			case 0, 1:
				n := 1 + s.IntN(20)
				w := s.constant(f32, []int{last, n}, s.data(f32, last*n, func() float64 { return 0.3 * s.normal() }))
				if s.coin() {
					w = s.node("Transpose", 1, attrs{"perm": []int{1, 0}}, s.constant(f32, []int{n, last}, s.data(f32, last*n, func() float64 { return 0.3 * s.normal() })))[0]
				}
				x, dims = s.node("MatMul", 1, nil, x, w)[0], append(dims[:len(dims)-1:len(dims)-1], n)
			case 2:
				d := pick(s, []int{last}, []int{1, last}, []int{1}, dims[len(dims)-2:], []int{dims[len(dims)-2], 1})
				x = s.node(pick(s, "Add", "Mul", "Sub"), 1, nil, x, s.constant(f32, d, s.data(f32, volume(d), s.normal)))[0]
			case 3:
				x = s.node(pick(s, "Relu", "Tanh", "Sigmoid", "Neg"), 1, nil, x)[0]
			case 4:
				x = s.node("Softmax", 1, attrs{"axis": pick(s, -1, -2)}, x)[0]
			case 5:
				perm := make([]int, len(dims))
				for i := range perm {
					perm[i] = i
				}
				n := len(dims)
				perm[n-1], perm[n-2] = n-2, n-1
				t := s.node("Transpose", 1, attrs{"perm": perm}, x)[0]
				x, dims = s.node("MatMul", 1, nil, x, t)[0], append(dims[:n-1:n-1], dims[n-2])
			default:
				if len(dims) == 2 {
					n := 1 + s.IntN(9)
					a := attrs{"transB": s.IntN(2), "alpha": pick[float64](s, 1, 0.5), "beta": pick[float64](s, 1, 2)}
					w := []int{last, n}
					if a["transB"] == 1 {
						w = []int{n, last}
					}
					c := pick(s, []int{n}, []int{1, n}, []int{dims[0], 1})
					x = s.node("Gemm", 1, a, x, s.constant(f32, w, s.data(f32, n*last, s.normal)), s.constant(f32, c, s.data(f32, volume(c), s.normal)))[0]
					dims = []int{dims[0], n}
				}
			}
		}
		s.output(s.node("Identity", 1, nil, x)[0], f32)
	},
	"LogisticAttention": func(s *sketch) { // attention as exporters spell it
		b, h, t, u, d := 1+s.IntN(2), 1+s.IntN(3), 1+s.IntN(9), 1+s.IntN(9), 1+s.IntN(9)
		q, k, v := s.input(f32, []int{b, h, t, d}, s.normal), s.input(f32, []int{b, h, u, d}, s.normal), s.input(f32, []int{b, h, u, d}, s.normal)
		x := s.node("MatMul", 1, nil, q, s.node("Transpose", 1, attrs{"perm": []int{0, 1, 3, 2}}, k)[0])[0]
		x = s.node(pick(s, "Mul", "Div"), 1, nil, x, s.scalar(f32, s.positive()))[0]
		if s.coin() {
			x = s.node("Add", 1, nil, x, s.input(f32, pick(s, []int{t, u}, []int{b, 1, 1, u}, []int{u}, []int{b, h, t, u}, []int{1, h, t, 1}), s.normal))[0]
		}
		if s.coin() {
			seen := pick(s, 1, 3) // whole rows are hidden as well
			m := s.input(onnx.Bool, pick(s, []int{t, u}, []int{b, 1, 1, u}, []int{t, 1}), func() float64 { return float64(s.IntN(2) * s.IntN(seen+1)) })
			x = s.node("Where", 1, nil, m, x, s.scalar(f32, pick(s, -1e9, -1e4, -5, math.Inf(-1), -math.MaxFloat32)))[0]
			if s.coin() { // a second mask, which may hide the rest
				late := s.input(f32, []int{t, u}, func() float64 { return pick(s, 0, 0, -1e9, -math.MaxFloat32, math.Inf(-1)) })
				x = s.node("Add", 1, nil, x, late)[0]
			}
		}
		x = s.node("Softmax", 1, attrs{"axis": pick(s, -1, 3, 2)}, x)[0]
		x = s.node("MatMul", 1, nil, x, v)[0]
		if s.coin() {
			x = s.node("Transpose", 1, attrs{"perm": []int{0, 2, 1, 3}}, x)[0]
		}
		s.output(x, f32)
	},
	"Recurrent": func(s *sketch) {
		op := pick(s, "LSTM", "GRU", "RNN")
		gates := map[string]int{"LSTM": 4, "GRU": 3, "RNN": 1}[op]
		t, b, in, h := 1+s.IntN(5), 1+s.IntN(3), 1+s.IntN(6), 1+s.IntN(9)
		direction := pick(s, "forward", "reverse", "bidirectional")
		d := 1
		if direction == "bidirectional" {
			d = 2
		}
		a := attrs{"direction": direction, "hidden_size": h}
		if s.rare() {
			a["clip"] = 0.7
		}
		small := func() float64 { return 0.5 * s.normal() }
		ops := []string{s.input(f32, []int{t, b, in}, s.normal), s.input(f32, []int{d, gates * h, in}, small), s.input(f32, []int{d, gates * h, h}, small), "", "", ""}
		if s.coin() {
			ops[3] = s.input(f32, []int{d, 2 * gates * h}, small)
		}
		if s.coin() {
			ops[4] = s.input(onnx.Int32, []int{b}, func() float64 { return float64(1 + s.IntN(t)) })
		}
		if s.coin() {
			ops[5] = s.input(f32, []int{d, b, h}, small)
		}
		results := 2
		switch op {
		case "GRU":
			a["linear_before_reset"] = s.IntN(2)
		case "LSTM":
			results = 3
			ops = append(ops, "", "")
			if s.coin() {
				ops[6] = s.input(f32, []int{d, b, h}, small)
			}
			if s.coin() {
				ops[7] = s.input(f32, []int{d, 3 * h}, small)
			}
			if s.rare() {
				a["input_forget"] = s.IntN(2)
			}
		}
		if s.rare() {
			per := map[string]int{"LSTM": 3, "GRU": 2, "RNN": 1}[op]
			var acts []string
			for range d * per {
				acts = append(acts, pick(s, "Tanh", "Sigmoid", "Relu", "Softsign", "HardSigmoid", "Elu"))
			}
			a["activations"] = acts
		}
		for _, o := range s.node(op, results, a, ops...) {
			s.output(o, f32)
		}
	},
	"DFT": func(s *sketch) {
		s.opset = 20
		n := 2 + s.IntN(9)
		a := attrs{"onesided": s.IntN(2)}
		c := 1
		if a["onesided"] == 0 {
			c = 1 + s.IntN(2)
			a["inverse"] = s.IntN(2)
		}
		s.output(s.node("DFT", 1, a, s.input(f32, []int{1 + s.IntN(2), n, c}, s.normal), "", s.scalar(onnx.Int64, 1))[0], f32)
	},
}
