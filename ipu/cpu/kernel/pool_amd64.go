package kernel

// windowLoop folds elements that lie stride bytes apart.
type windowLoop func(dst, x *float32, n, taps, stride int)

// windowLoops are the loops of one kind of pooling.
type windowLoops struct {
	rows   windowLoop    // folds rows into dst
	slides [2]windowLoop // fold stretches that begin at every and at every second element
}

var (
	wideMost   = windowLoops{mostRowsAVX512, [2]windowLoop{mostSlideAVX512, mostSlide2AVX512}}
	narrowMost = windowLoops{mostRowsAVX2, [2]windowLoop{mostSlideAVX2, mostSlide2AVX2}}
	wideSum    = windowLoops{sumRowsAVX512, [2]windowLoop{sumSlideAVX512, sumSlide2AVX512}}
	narrowSum  = windowLoops{sumRowsAVX2, [2]windowLoop{sumSlideAVX2, sumSlide2AVX2}}
)

// foldWindows folds the windows of an output row, to, of a plane, from, by
// vectors; strip is as long as s.strip. It reports whether it can.
func foldWindows[T number](s *poolShape, fold poolFold, to, from []T, strip []float32, w *windowRows) bool {
	if !s.vectors {
		return false
	}
	y, x := asFloat32(to), asFloat32(from)
	l := pick(&wideMost, &narrowMost)
	if fold == addWindow {
		l = pick(&wideSum, &narrowSum)
	}
	if s.global && len(x) <= sumStretch {
		if fold == addWindow {
			y[0] = loopSum(&x[0], len(x))
		} else {
			y[0] = loopMost(&x[0], len(x))
		}
		return true
	}
	a := &s.axes[len(s.axes)-1]
	row := strip[a.pad:][:a.in]
	inner, stride := 1, 0 // rows of the input that are stride elements apart
	if i := len(s.axes) - 2; i >= 0 {
		inner, stride = w.hi[i]-w.lo[i], s.axes[i].dilation*a.in
	}
	for done := 0; done < w.count; done += inner {
		at, rows := w.offset(), inner
		if done == 0 {
			copy(row, x[at:])
			at, rows = at+stride, inner-1
		}
		if rows > 0 {
			_ = x[at+(rows-1)*stride+a.in-1]
			l.rows(&row[0], &x[at], a.in, rows, 4*stride)
		}
		for range inner {
			w.next()
		}
	}
	if w.count == 0 {
		fillWith(row, fold.identity())
	}
	if a.stride <= len(l.slides) {
		l.slides[a.stride-1](&y[0], &strip[0], len(y), a.kernel, 4*a.dilation)
		return true
	}
	for o := range y {
		v := strip[o*a.stride]
		for k := 1; k < a.kernel; k++ {
			if u := strip[o*a.stride+k*a.dilation]; fold == addWindow {
				v += u
			} else {
				v = max(v, u)
			}
		}
		y[o] = v
	}
	return true
}

// divideWindows divides x by the counts of the columns, each times rows, by
// vectors.
func divideWindows[T float](x, counts []T, rows int) {
	y, n := asFloat32(x), asFloat32(counts)[:len(x)]
	if path == pathAVX512 {
		divideScaledAVX512(&y[0], &y[0], &n[0], len(y), float32(rows))
	} else {
		divideScaledAVX2(&y[0], &y[0], &n[0], len(y), float32(rows))
	}
}
