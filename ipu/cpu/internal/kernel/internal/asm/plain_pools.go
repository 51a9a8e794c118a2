package main

// planePlains are the loops of pooling and resizing.
var planePlains = map[string]string{
	"sumRows":    "for t := range taps {\n\tfor i := range n {\n\t\tdst[i] += x[t*stride/4+i]\n\t}\n}",
	"mostRows":   "for t := range taps {\n\tfor i := range n {\n\t\tdst[i] = max(dst[i], x[t*stride/4+i])\n\t}\n}",
	"sumSlide":   slide("s += v", "", 1),
	"sumSlide2":  slide("s += v", "", 2),
	"mostSlide":  slide("s = max(s, v)", "", 1),
	"mostSlide2": slide("s = max(s, v)", "", 2),
	"sumPixels":  pixelsOf("s += v"),
	"mostPixels": pixelsOf("s = max(s, v)"),
	"sumDown":    down("s := float32(0)", "s += v", ""),
	"mostDown":   down("s := float32(math.Inf(-1))", "s = max(s, v)", "\nreturn whether // not 0 if an element is NaN; then a maximum may be wrong"),
	"sumAlong":   along("s += v", 1, " / divisors[table[r]/4+2*lanes*(i/lanes)+i%lanes] // beside a vector of them their reciprocals"),
	"sumAlong2":  along("s += v", 2, " / divisors[table[r]/4+2*lanes*(i/lanes)+i%lanes] // beside a vector of them their reciprocals"),
	"mostAlong":  along("s = max(s, v)", 1, " // of NaN it is not said what comes"),
	"mostAlong2": along("s = max(s, v)", 2, " // of NaN it is not said what comes"),
	"bilinearPixels": "for p := range pixels {\n\tfor c := range lanes {\n\t\tl, r := left[p]+c, right[p]+c\n" +
		"\t\ty[p*lanes+c] = near[l]*nearWeight*leftWeight[p] + near[r]*nearWeight*rightWeight[p] +\n" +
		"\t\t\tfar[l]*farWeight*leftWeight[p] + far[r]*farWeight*rightWeight[p] // each product and sum rounded\n\t}\n}",
}

// number is a factor as it is written before an index.
func number(every int) string {
	if every == 2 {
		return "2*"
	}
	return ""
}

// slide is the loop that folds stretches which begin at every so manyth element.
func slide(step, end string, every int) string {
	return "for i := range n {\n\ts := x[" + number(every) + "i]\n\tfor t := 1; t < taps; t++ {\n\t\tv := x[" + number(every) + "i+t*stride/4]\n\t\t" + step +
		"\n\t}\n\tdst[i] = s" + end + "\n}"
}

// pixelsOf is the loop that folds stretches of pixels in NCHWc.
func pixelsOf(step string) string {
	return "for p := range pixels {\n\tfor c := range lanes {\n\t\ts := x[p*step/4+c]\n\t\tfor t := 1; t < taps; t++ {\n\t\t\tv := x[p*step/4+t*stride/4+c]\n\t\t\t" +
		step + "\n\t\t}\n\t\tdst[p*lanes+c] = s\n\t}\n}"
}

// down is the loop that folds rows into one.
func down(start, step, end string) string {
	return "for r := range rows {\n\tfrom, taps := table[2*r]/4, table[2*r+1]\n\tfor i := range n {\n\t\t" + start +
		"\n\t\tfor t := range taps {\n\t\t\tv := x[from+t*step/4+i]\n\t\t\t" + step + "\n\t\t}\n\t\tdst[r*width/4+i] = s\n\t}\n}" + end
}

// along is the loop that folds stretches of rows.
func along(step string, every int, end string) string {
	return "for r := range rows {\n\tfor i := range n {\n\t\ts := x[r*width/4+" + number(every) + "i]\n\t\tfor t := 1; t < taps; t++ {\n\t\t\tv := x[r*width/4+" + number(every) +
		"i+t*dilation/4]\n\t\t\t" + step + "\n\t\t}\n\t\tdst[r*n+i] = s" + end + "\n\t}\n}"
}

// movePlains are loops that move elements.
var movePlains = map[string]string{
	"transposeTiles": "for r := range rows { // rows and cols are multiples of 8\n\tfor c := range cols {\n\t\tdst[r*to/4+c] = x[c*from/4+r]\n\t}\n}",
	"transpose":      "for c := range 8 * blocks {\n\tfor r := range 8 {\n\t\tdst[32*c+r] = src[r*step/4+c]\n\t}\n}",
	"copyRuns":       "for r := range rows {\n\tcopy(dst[r*to:][:bytes], src[r*from:][:bytes]) // at least 4\n}",
	"deal2":          "for r := range rows {\n\tfor i := range n { // at least lanes\n\t\td0[r*to/4+i], d1[r*to/4+i] = x[r*from/4+2*i], x[r*from/4+2*i+1]\n\t}\n}",
	"deal3":          "for i := range 16 * groups {\n\td0[i], d1[i], d2[i] = x[3*i], x[3*i+1], x[3*i+2]\n}",
	"bytesTranspose": "for c := range 16 * groups {\n\tfor r := range 8 {\n\t\tdst[c*to+r] = src[r*from+c] ^ uint8(flip)\n\t}\n}",

	"planesToBlocks":     "for c := range lanes {\n\tfrom := min(c, channels-1) // the last channel is repeated\n\tfor p := range lanes * chunks {\n\t\tblocked[lanes*p+c] = planar[from*pitch/4+p]\n\t}\n}",
	"blocksToPlanes":     "for c := range channels {\n\tfor p := range lanes * chunks {\n\t\tplanar[c*pitch/4+p] = blocked[lanes*p+c]\n\t}\n}",
	"planesToBlocksHalf": "for c := range lanes {\n\tfrom := min(c, channels-1) // the last channel is repeated\n\tfor p := range lanes * chunks {\n\t\tblocked[lanes*p+c] = float32(float16(planar[from*pitch/2+p]))\n\t}\n}",
	"blocksToPlanesHalf": "for c := range channels {\n\tfor p := range lanes * chunks {\n\t\tplanar[c*pitch/2+p] = float16(blocked[lanes*p+c]) // to nearest even\n\t}\n}",
	"convCopy":           copied("lanes * vectors", "dst[to+i] = v"),
	"convCopyEven": copied("2 * lanes * vectors",
		"if i%2 == 0 {\n\t\t\t\tdst[to+i/2] = v\n\t\t\t} else if odd != 0 {\n\t\t\t\tdst[to+odd/4+i/2] = v\n\t\t\t}"),
}

// copied is the loop that copies rows of planes under masks.
func copied(count, write string) string {
	return "for p := range planes {\n\tfor r := range rows {\n\t\tat, to := (p*srcPlane+r*srcRow+shift)/4, (p*dstPlane+r*dstRow)/4\n" +
		"\t\tfor i := range " + count + " {\n\t\t\tv := src[at+i] // 0 if bit i of masks is not set\n\t\t\t" + write + "\n\t\t}\n\t}\n}"
}
