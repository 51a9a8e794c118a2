package main

import "strings"

// bounded is how sums of matrix products become results: within the limits, if
// they are on.
const bounded = "min(max(%, limits.low)+limits.zero, limits.high)"

// matrixPlains are the loops of products of matrices.
var matrixPlains = map[string]string{
	"gemm":       gemmPlain("the columns of mask; B has as many as a tile is wide"),
	"gemmMasked": gemmPlain("the columns of mask alone"),
	"gemv": "for r := range rows {\n\tfor c := range 32 * panels {\n\t\ts := float32(0)\n\t\tfor i := range k { // in this order\n" +
		"\t\t\ts = fma(a[r*aRow/4+i*aStep/4], b[c/32*bPanel/4+i*bStep/4+c%32], s)\n\t\t}\n" +
		"\t\tv := fma(alpha, s, d[r*dRow/4+c]) // d[r*dRow/4] if column is set\n\t\tc[r*cRow/4+c] = " + strings.Replace(bounded, "%", "v", 1) + "\n\t}\n}",
	"dot": "for r := range rows {\n\tfor c := range 4 {\n\t\tout[r][c] = 0\n\t\tfor i := range k {\n\t\t\tout[r][c] += a[r*aRow/4+i] * b[c*bRow/4+i]\n\t\t}\n\t}\n}",
	"gates": "for g := range gates {\n\tfor r := range rows {\n\t\tfor c := range 32 * panels {\n\t\t\ts := float32(0)\n\t\t\tfor i := range k { // in this order\n" +
		"\t\t\t\ts = fma(h[r*hRow/4+i], r[c/32*rNext/4+i*rStep/4+32*g+c%32], s)\n\t\t\t}\n" +
		"\t\t\tto[g][(r*toRow[g]+c/32*next)/4+c%32] = s + from[g][(r*fromRow[g]+c/32*next)/4+c%32]\n\t\t}\n\t}\n}",
}

// gemmPlain is the loop of a tile of a product.
func gemmPlain(columns string) string {
	return "for r := range rows {\n\tfor j := range columns { // " + columns + "\n\t\ts := float32(0)\n\t\tfor i := range k { // in this order\n" +
		"\t\t\ts = fma(a[r*aRow/4+i*aStep/4], b[i*bStep/4+j], s)\n\t\t}\n" +
		"\t\tv := fma(alpha, s, d[r*dRow/4+j]) // d[r*dRow/4] if column is set\n\t\tc[r*cRow/4+j] = " + strings.Replace(bounded, "%", "v", 1) + "\n\t}\n}"
}

// inBlocks is how convolutions add up: 128 products, then the sums of these.
const inBlocks = "each multiplied and added with one rounding, 128 at a time, then their sums"

// convPlains are the loops of convolutions.
var convPlains = map[string]string{
	"convMaps": "for r := range rows { // pixels; those from split on begin at x2\n\tfor c := range lanes * vectors { // output channels\n\t\ts := float32(0)\n" +
		"\t\tfor i := range k { // " + inBlocks + "\n\t\t\ts += x[r+offsets[i]/4] * w[i*lanes*vectors+c]\n\t\t}\n" +
		"\t\ttile[r*lanes*vectors+c] = s // of which convStore makes the result\n\t}\n}",
	"convPixels": "for r := range rows { // output channels\n\tfor c := range lanes * vectors { // pixels\n\t\ts := float32(0)\n" +
		"\t\tfor i := range k { // " + inBlocks + "\n\t\t\ts += w[i*rows+r] * x[c+offsets[i]/4]\n\t\t}\n" +
		"\t\ty[r*yRow/4+c] = min(max(s+bias[r], low), high) // of the pixels of mask\n\t}\n}",
	"convStore": "for c := range rows { // output channels\n\tfor p := range lanes { // pixels, of those of mask\n\t\ty[c*yRow/4+p] = min(max(tile[p*lanes*vectors+c]+bias[c], low), high)\n\t}\n}",
	"convPlane": "for c := range lanes * vectors { // pixels\n\ts := float32(0)\n\tfor i := range k { // in fours, each product rounded, then their sums\n" +
		"\t\ts += w[i] * x[c+offsets[i]/4]\n\t}\n\ty[c] = min(max(s+bias[0], low), high) // of the pixels of mask\n}",
	"depthwise3":     window(3, 1),
	"depthwise5":     window(5, 1),
	"depthwise3Even": window(3, 2),
	"depthwise5Even": window(5, 2),

	"blockedDepthwise3":     blockedWindow(3, 1),
	"blockedDepthwise5":     blockedWindow(5, 1),
	"blockedDepthwise3Even": blockedWindow(3, 2),
	"blockedDepthwise5Even": blockedWindow(5, 2),
	"blockedTiles": "for t := range tiles {\n\tfor p := range rows { // pixels; those from split on begin at x2\n\t\tfor c := range lanes * vectors { // output channels\n\t\t\ts := float32(0)\n" +
		"\t\t\tfor i := range k { // " + inBlocks + "\n\t\t\t\ts += x[(t*tileX+p*step+offsets[i])/4] * w[i*lanes*vectors+c]\n\t\t\t}\n" +
		"\t\t\tat := (t*tileY+c/lanes*block)/4 + p*lanes + c%lanes\n\t\t\ty[at] = min(max(s+bias[c]+r[at], low), high) // each sum rounded to half if half is set\n\t\t}\n\t}\n}",
}

// window is the loop of a convolution of a plane with one window.
func window(size, stride int) string {
	n, s := string(rune('0'+size)), number(stride)
	return "for i := range rows {\n\tfor j := range lanes * vectors {\n\t\ts := float32(0)\n\t\tfor p := range " + n + " { // in fours, each product rounded, then their sums\n\t\t\tfor q := range " + n +
		" {\n\t\t\t\ts += w[" + n + "*p+q] * x[(row+" + s + "i+p)*xRow/4+offset/4+" + s + "j+q] // 0 outside height and masks\n\t\t\t}\n\t\t}\n" +
		"\t\ty[i*yRow/4+j] = min(max(s+bias, low), high)\n\t}\n}"
}

// blockedWindow is the same for planes in NCHWc.
func blockedWindow(size, stride int) string {
	n, s := string(rune('0'+size)), number(stride)
	return "for i := range rows {\n\tfor j := range before + inside + after {\n\t\tfor c := range lanes {\n\t\t\ts := float32(0)\n\t\t\tfor p := range " + n +
		" { // in fours, each product rounded, then their sums\n\t\t\t\tfor q := range " + n + " {\n\t\t\t\t\ts += w[(" + n + "*p+q)*lanes+c] * x[(row+" + s + "i+p)*xRow/4+(column+" + s +
		"j+q)*lanes+c] // 0 outside the plane\n\t\t\t\t}\n\t\t\t}\n\t\t\tat := (i*(before+inside+after)+j)*lanes + c\n" +
		"\t\t\ty[at] = min(max(s+bias[c]+r[at], low), high) // each sum rounded to half if half is set\n\t\t}\n\t}\n}"
}

// bytePlains are the loops on bytes.
var bytePlains = map[string]string{
	"int8Product": "for r := range rows { // of a tile, after those that are done\n\tfor c := range 16 * vectors {\n\t\ts := first[c]\n\t\tfor i := range 4 * steps {\n" +
		"\t\t\ts += int32(a[r*aRow+i]) * int32(int8(b[i/4*128+4*c+i%4])) // by AVX2, a is numbers of 16 bits\n\t\t}\n\t\ttile[32*r+c] = s\n\t}\n}",
	"int8Conv": "for r := range rows { // of a tile, after those that are done\n\tfor c := range 16 * vectors {\n\t\ts := first[r]\n\t\tfor i := range 4 * steps {\n" +
		"\t\t\ts += int32(int8(a[r*aRow+i])) * int32(b[offsets[i/4]+4*c+i%4]) // by AVX2, a is numbers of 16 bits\n\t\t}\n\t\ttile[32*r+c] = s\n\t}\n}",
	"int8ColumnsInts":   finish("c", "int32", "v"),
	"int8ColumnsFloats": finish("c", "float32", "min(max(float32(v)*scale[c]+shift[c], low), high)"),
	"int8ColumnsBytes":  finish("c", "uint8", "uint8(int32(roundToEven(min(max(float32(v)*scale[c]+shift[c], low), high))) + zero)"),
	"int8RowsInts":      finish("r", "int32", "v"),
	"int8RowsFloats":    finish("r", "float32", "min(max(float32(v)*scale[r]+shift[r], low), high)"),
	"int8RowsBytes":     finish("r", "uint8", "uint8(int32(roundToEven(min(max(float32(v)*scale[r]+shift[r], low), high))) + zero)"),
	"int8PlaneInts":     plane("s"),
	"int8PlaneFloats":   plane("min(max(float32(s)*scale+shift, low), high)"),
	"int8PlaneBytes":    plane("uint8(int32(roundToEven(min(max(float32(s)*scale+shift, low), high))) + zero)"),

	"bytesConv": "for t := range tiles {\n\tfor r := range rows { // pixels\n\t\tfor c := range 16 * vectors { // output channels, of those of mask\n\t\t\ts := first[c]\n" +
		"\t\t\tfor j := range runCount {\n\t\t\t\tfor i := range run {\n\t\t\t\t\ts += int32(x[pixels[t*rows+r]+runs[j]+i]) * weight(j, i, c)\n\t\t\t\t}\n\t\t\t}\n" +
		"\t\t\tout[outAt+(t*rows+r)*outRow+c] = bytesOf(float32(s)*scale[c]+shift[c], end)\n\t\t}\n\t}\n}",
	"bytesDepth": "for o := range outs { // lines of the result\n\tfor c := range 64 * chunks { // bytes of a line\n\t\ts := firstOf(params, c)\n" +
		"\t\tfor g := range 4 * groups { // lines of the window\n\t\t\tfor t := range taps {\n\t\t\t\ts += int32(x[rows[g]+in(c)+t*tap]) * weight(g, t, c)\n\t\t\t}\n\t\t}\n" +
		"\t\tout[o][to(c)] = bytesOf(float32(s)*scaleOf(params, c)+shiftOf(params, c), end)\n\t}\n}",
	"bytesAdd": pair("+"),
	"bytesMul": pair("*"),
	"bytesMap": "for r := range rows {\n\tfor i := range 64 * chunks { // of the last chunk the bytes of mask\n\t\tout[r*(64*(chunks-1)+to)+i] = table[x[r*(64*(chunks-1)+skip)+i]]\n\t}\n}",
	"bytesMost": "for i := range 64 * chunks { // of the last chunk the bytes of mask\n\tm := uint8(0)\n\tfor l := range lines {\n\t\tfor t := range taps {\n" +
		"\t\t\tm = max(m, x[l*line+t*tap+i])\n\t\t}\n\t}\n\tout[i] = m\n}",
}

// finish is the loop that makes results of the sums of a tile.
func finish(parameter, to, value string) string {
	return "for r := range rows { // the parameters belong to " + map[string]string{"c": "columns", "r": "rows"}[parameter] + "\n\tat := 0\n\tfor c := range 32 { // of those of keep; by AVX2 all of 16 at a time\n" +
		"\t\tv := tile[32*r+c] + outer[r]*line[c] // outer may be nil\n\t\tout(r, at) = " + value + " // a " + to + ", in the row at r*outRow\n\t\tat++\n\t}\n}"
}

// plane is the loop that computes an image of one output channel.
func plane(value string) string {
	return "for c := range lanes * blocks {\n\ts := first\n\tfor i := range 4 * steps {\n\t\ts += int32(int8(w[i])) * int32(x[offsets[i/4]+4*c+i%4])\n\t}\n\tout[c] = " + value + "\n}"
}

// pair is the loop over pairs of bytes.
func pair(operator string) string {
	return "for r := range rows {\n\tfor i := range 64 * chunks { // of the last chunk the bytes of mask; skipA, skipB and skip come after a row\n" +
		"\t\tu := float32(int32(a[i])-zero[0]) * scale[0]\n\t\tv := float32(int32(b[i])-zero[1]) * scale[1]\n\t\tout[i] = bytesOf((u " + operator + " v)/step, end) // by is nearest to 1/step\n\t}\n}"
}
