package main

// gradientPlains are the loops that go back through pooling and normalisation.
var gradientPlains = map[string]string{
	"dotRow":     "var s float32\nfor i := range n {\n\ts += x[i] * y[i]\n}\nreturn s",
	"dotCentred": "var s float32\nfor i := range n {\n\ts += (x[i] - mean) * y[i]\n}\nreturn s",
	"dotScaled":  "var s float32\nfor i := range n {\n\ts += (x[i] - mean) * (y[i] * scale[i])\n}\nreturn s",
	"backScaled": "for i := range n {\n\that := (x[i] - mean) * factor\n\tdst[i] = (dy[i]*scale[i] - first - hat*second) * factor\n" +
		"\tdscale[i] += dy[i] * hat\n\tdbias[i] += dy[i]\n}",
	"backChannel":    "for i := range n {\n\tdst[i] = dy[i]*scale + (x[i]-mean)*slope + shift\n}",
	"backSoftmax":    "for i := range n {\n\tdst[i] = y[i] * (dy[i] - total)\n}",
	"backLogSoftmax": "for i := range n {\n\tdst[i] = dy[i] - exp(y[i])*total\n}",
	"backMaxPool2": "for r := range rows {\n\tfor i := range n {\n\t\twindow := [4]int{2 * i, 2*i + 1, width/4 + 2*i, width/4 + 2*i + 1}\n\t\tfirst := window[0]\n" +
		"\t\tfor _, at := range window {\n\t\t\tdst[at] = 0\n\t\t\tif !(x[at] <= x[first]) && x[first] == x[first] { // the first NaN is the greatest\n\t\t\t\tfirst = at\n\t\t\t}\n\t\t}\n" +
		"\t\tdst[first] = dy[i]\n\t}\n\tdst, x, dy = dst[width/2:], x[width/2:], dy[n:]\n}",
}
