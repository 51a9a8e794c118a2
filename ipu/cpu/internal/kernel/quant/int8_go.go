package quant

import "unsafe"

// lanesGo adds up the products of a row's four bytes with those of lanes.
func lanesGo[A, B int8 | uint8](sums []int32, a *[Int8Step]A, b []B) {
	a0, a1, a2, a3 := int32(a[0]), int32(a[1]), int32(a[2]), int32(a[3])
	b = b[:Int8Step*len(sums)]
	for j := range sums {
		x := b[Int8Step*j:][:Int8Step]
		sums[j] += a0*int32(x[0]) + a1*int32(x[1]) + a2*int32(x[2]) + a3*int32(x[3])
	}
}

// int8SumsGo is the plain way to add up products.
func int8SumsGo[A, B int8 | uint8](args *int8Args) {
	first := func(i int) int32 { return *(*int32)(unsafe.Add(unsafe.Pointer(args.first), 4*i)) }
	n := 16 * args.vectors
	for r := range args.rows {
		sums := unsafe.Slice((*int32)(unsafe.Add(unsafe.Pointer(args.tile), 4*int8Width*r)), n)
		for j := range sums {
			if args.offsets != nil {
				sums[j] = first(r)
			} else {
				sums[j] = first(j)
			}
		}
		a := unsafe.Slice((*[Int8Step]A)(unsafe.Add(unsafe.Pointer(args.a), r*args.aRow)), args.steps)
		for s := range a {
			offset := s * Int8Step * int8Width
			if args.offsets != nil {
				offset = *(*int)(unsafe.Add(unsafe.Pointer(args.offsets), 8*s))
			}
			lanesGo(sums, &a[s], unsafe.Slice((*B)(unsafe.Add(unsafe.Pointer(args.b), offset)), Int8Step*n))
		}
	}
}

// int8FinishGo is the plain way to make results of a tile.
func int8FinishGo(kind int8Kind, byRows bool, args *int8FinishArgs) {
	size := 4
	if kind == int8ToBytes {
		size = 1
	}
	number := func(p *int32, i int) int32 { return *(*int32)(unsafe.Add(unsafe.Pointer(p), 4*i)) }
	float := func(p *float32, i int) float32 { return *(*float32)(unsafe.Add(unsafe.Pointer(p), 4*i)) }
	for r := range args.rows {
		at := 0
		row := unsafe.Add(unsafe.Pointer(args.out), r*args.outRow)
		for j := range int8Width {
			if args.keep[j/16]>>(j%16)&1 == 0 {
				continue
			}
			p := j
			if byRows {
				p = r
			}
			sum := number(args.tile, r*int8Width+j)
			if args.outer != nil {
				sum += number(args.outer, r) * number(args.line, j)
			}
			var scale, shift float32
			if kind != int8ToInts {
				scale, shift = float(args.scale, p), float(args.shift, p)
			}
			int8Store(kind, unsafe.Slice((*byte)(row), size*(at+1)), at, sum, scale, shift, args)
			at++
		}
	}
}

// int8PlaneGo is the plain way to compute n results of one output channel.
func int8PlaneGo(kind int8Kind, args *int8PlaneArgs, n int) {
	size := 4
	if kind == int8ToBytes {
		size = 1
	}
	offsets := unsafe.Slice(args.offsets, args.steps)
	w := unsafe.Slice((*[Int8Step]int8)(unsafe.Pointer(args.w)), args.steps)
	out := unsafe.Slice(args.out, n*size)
	end := int8FinishArgs{low: args.low, high: args.high, zero: args.zero}
	for i := range n {
		sum := args.first
		for s, offset := range offsets {
			x := (*[Int8Step]uint8)(unsafe.Add(unsafe.Pointer(args.x), offset+Int8Step*i))
			sum += int32(x[0])*int32(w[s][0]) + int32(x[1])*int32(w[s][1]) + int32(x[2])*int32(w[s][2]) + int32(x[3])*int32(w[s][3])
		}
		int8Store(kind, out, i, sum, args.scale, args.shift, &end)
	}
}
