package main

import (
	"fmt"
	"maps"
	"strings"
)

// plains are, by operation, the loops that the functions compute, in Go: the
// definition that their declarations show. p[i] is element i from the pointer
// p on, lanes the number of float32 in a vector. Distances from one row to the
// next (stride, step, dilation, width, to, from, …) are in bytes, so that a
// fourth of one is a number of float32. Sums of several elements are in
// another order, that of the lanes, unless the loop says which.
var plains = func() map[string]string {
	all := map[string]string{}
	for _, some := range []map[string]string{
		over("n", elementPlains), over("16*groups", groupPlains), rowPlains, planePlains, gradientPlains, updatePlains, movePlains, matrixPlains, convPlains, bytePlains,
	} {
		for name := range some {
			if _, ok := all[name]; ok {
				panic("two plain loops are called " + name)
			}
		}
		maps.Copy(all, some)
	}
	return all
}()

// over makes each body a loop.
func over(count string, bodies map[string]string) map[string]string {
	loops := map[string]string{}
	for name, body := range bodies {
		loops[name] = fmt.Sprintf("for i := range %s {\n\t%s\n}", count, strings.ReplaceAll(body, "\n", "\n\t"))
	}
	return loops
}

// elementPlains are loops over n elements.
var elementPlains = map[string]string{
	"add":        "dst[i] = x[i] + y[i]",
	"subtract":   "dst[i] = x[i] - y[i]",
	"multiply":   "dst[i] = x[i] * y[i]",
	"divide":     "dst[i] = x[i] / y[i]",
	"maximum":    "dst[i] = max(x[i], y[i])",
	"minimum":    "dst[i] = min(x[i], y[i])",
	"clip":       "dst[i] = min(max(x[i], lo[i]), hi[i])",
	"relu":       "dst[i] = x[i]\nif x[i] <= 0 {\n\tdst[i] = 0\n}",
	"normalise":  "dst[i] = fma(x[i]-mean, factor, shift)",
	"addOne":     "dst[i] = x[i] + y",
	"maximumOne": "dst[i] = max(x[i], y)",
	"minimumOne": "dst[i] = min(x[i], y)",
	"preluOne":   "dst[i] = x[i]\nif x[i] < 0 {\n\tdst[i] = x[i] * y\n}",
	"clipOne":    "dst[i] = min(max(x[i], lo), hi) + zero // zero is -0 unless lo is +0",
	"divideOne":  "dst[i] = x[i] / y // reciprocal is 1/y",
	"scale":      "dst[i] = x[i] * factor",

	"exp":             "dst[i] = exp(x[i])",
	"log":             "dst[i] = log(x[i])",
	"sigmoid":         "dst[i] = 1 / (1 + exp(-x[i]))",
	"tanh":            "dst[i] = tanh(x[i])",
	"erf":             "dst[i] = erf(x[i])",
	"softplus":        "dst[i] = log(1 + exp(x[i]))",
	"mish":            "dst[i] = x[i] * tanh(log(1+exp(x[i])))",
	"gelu":            "dst[i] = x[i] * (1 + erf(x[i]/math.Sqrt2)) / 2",
	"geluTanh":        "dst[i] = x[i] * (1 + tanh(sqrt(2/math.Pi)*(x[i]+0.044715*x[i]*x[i]*x[i]))) / 2",
	"sin":             "dst[i] = sin(x[i]) // of x[i] between -1<<20 and 1<<20",
	"cos":             "dst[i] = cos(x[i]) // of x[i] between -1<<20 and 1<<20",
	"atan":            "dst[i] = atan(x[i])",
	"asin":            "dst[i] = asin(x[i])",
	"acos":            "dst[i] = acos(x[i])",
	"sinh":            "dst[i] = sinh(x[i])",
	"cosh":            "dst[i] = cosh(x[i])",
	"root":            "dst[i] = pow(x[i], 0.5) // unlike sqrt, +0 of -0 and +Inf of -Inf",
	"abs":             "dst[i] = abs(x[i])",
	"negate":          "dst[i] = -x[i]",
	"sign":            "dst[i] = x[i] // 0, -0 and NaN stay\nif x[i] > 0 {\n\tdst[i] = 1\n} else if x[i] < 0 {\n\tdst[i] = -1\n}",
	"round":           "dst[i] = roundToEven(x[i])",
	"floor":           "dst[i] = floor(x[i])",
	"ceil":            "dst[i] = ceil(x[i])",
	"sqrt":            "dst[i] = sqrt(x[i])",
	"reciprocal":      "dst[i] = 1 / x[i]",
	"softsign":        "dst[i] = x[i] / (1 + abs(x[i]))",
	"hardSwish":       "dst[i] = x[i] * min(max(x[i]/6+0.5, 0), 1)",
	"hardSigmoid":     "dst[i] = min(max(x[i]*alpha+beta, 0), 1)",
	"leakyRelu":       "dst[i] = x[i]\nif x[i] < 0 {\n\tdst[i] = x[i] * alpha\n}",
	"thresholdedRelu": "dst[i] = x[i]\nif x[i] <= alpha {\n\tdst[i] = 0\n}",
	"swish":           "dst[i] = x[i] / (1 + exp(-alpha*x[i]))",
	"elu":             "v := x[i]\nif v < 0 {\n\tv = scale * (exp(rate*v) - 1)\n}\ndst[i] = all * v",
	"pow":             "dst[i] = pow(x[i], y[i])",
	"prelu":           "dst[i] = x[i]\nif x[i] < 0 {\n\tdst[i] = x[i] * slope[i]\n}",

	"lstmCell": "c[i] = sigmoid(f[i])*c[i] + sigmoid(i[i])*tanh(u[i]) // the gate i by the index i\nh[i] = sigmoid(o[i]) * tanh(c[i])",
	"gated":    "dst[i] = sigmoid(r[i]) * x[i]",
	"gruCell":  "s := sigmoid(z[i])\ndst[i] = (1-s)*tanh(u[i]) + s*h[i]",
	"gruLinearCell": "s := sigmoid(z[i])\n" +
		"dst[i] = (1-s)*tanh(sigmoid(r[i])*p[i]+u[i]) + s*h[i]",
	"lstmBack": "y := tanh(c[k])\nall := dc[k] + dh[k]*o[k]*(1-y*y)\n" +
		"i[k], f[k], u[k], dc[k] = all*u[k]*i[k]*(1-i[k]), all*b[k]*f[k]*(1-f[k]), all*i[k]*(1-u[k]*u[k]), all*f[k] // k from 0 to n-1\n" +
		"o[k] = dh[k] * y * o[k] * (1 - o[k])",
	"gruBack":    "z[i], u[i], dh[i] = dh[i]*(h[i]-u[i])*z[i]*(1-z[i]), dh[i]*(1-z[i])*(1-u[i]*u[i]), dh[i]*z[i]",
	"resetBack":  "r[i], dh[i] = d[i]*h[i]*r[i]*(1-r[i]), dh[i]+d[i]*r[i]",
	"linearBack": "r[i], q[i] = du[i]*q[i]*r[i]*(1-r[i]), du[i]*r[i]",
	"tanhBack":   "d[i] = dy[i] * (1 - y[i]*y[i])",

	"expDifference":      "dst[i] = exp(x[i] - y[i])",
	"lower":              "dst[i] = x[i] - shift - more",
	"normaliseScale":     "dst[i] = (x[i] - mean) * factor * scale[i]",
	"normaliseScaleBias": "dst[i] = fma((x[i]-mean)*factor, scale[i], bias[i])",
	"greater":            "if !(x[i] <= best[i]) && best[i] == best[i] { // the first NaN is the greatest\n\tbest[i], at[i] = x[i], d\n}",
	"divideScaled":       "dst[i] = (x[i] + 0) / (y[i] * factor)",
	"interpolate": "dst[i] = left[i]*near*nearLeft[i] + right[i]*near*nearRight[i] +\n" +
		"\tleft[i]*far*farLeft[i] + right[i]*far*farRight[i] // each product and sum rounded",
}

// groupPlains are loops over groups of 16 elements.
var groupPlains = map[string]string{
	"equalFloat":     "dst[i] = 0\nif x[i] == y[i] {\n\tdst[i] = 1\n}",
	"lessFloat":      "dst[i] = 0\nif x[i] < y[i] {\n\tdst[i] = 1\n}",
	"lessEqualFloat": "dst[i] = 0\nif x[i] <= y[i] {\n\tdst[i] = 1\n}",
	"equalInt":       "dst[i] = 0\nif x[i] == y[i] {\n\tdst[i] = 1\n}",
	"lessInt":        "dst[i] = 0\nif x[i] < y[i] {\n\tdst[i] = 1\n}",
	"lessEqualInt":   "dst[i] = 0\nif x[i] <= y[i] {\n\tdst[i] = 1\n}",

	"floatToInt":   "dst[i] = int32(x[i])",
	"intToFloat":   "dst[i] = float32(x[i])",
	"floatToLong":  "dst[i] = int64(x[i])",
	"longToFloat":  "dst[i] = float32(x[i])",
	"floatToByte":  "dst[i] = uint8(int64(x[i]))",
	"floatToBool":  "dst[i] = 0\nif x[i] != 0 {\n\tdst[i] = 1\n}",
	"widenBfloat":  "dst[i] = math.Float32frombits(uint32(x[i]) << 16)",
	"narrowBfloat": "dst[i] = bfloat16(x[i]) // to nearest even; NaN stays NaN",
	"choose":       "dst[i] = y[i]\nif which[i] != 0 {\n\tdst[i] = x[i]\n}",

	"quantise":           "dst[i] = uint8(int32(roundToEven(min(max(x[i]/scale, low), high))) + int32(zero)) // NaN counts as low",
	"quantiseBy":         "dst[i] = uint8(int32(roundToEven(min(max(x[i]/scale, low), high))) + int32(zero)) // by is nearest to 1/scale",
	"dequantiseSigned":   "dst[i] = (float32(int8(x[i])) - zero) * scale",
	"dequantiseUnsigned": "dst[i] = (float32(x[i]) - zero) * scale",

	"int8Interleave": "for j, s := range [...]*uint8{s0, s1, s2, s3} {\n\tdst[4*i+j] = s[i] ^ uint8(flip)\n}",
	"int8Even":       "dst[i] = src[2*i]",
	"int8Widen":      "dst[4*(i/4)+[...]int{0, 2, 1, 3}[i%4]] = uint16(src[i] ^ uint8(flip)) // of four, those with even places first",
}

// rowPlains are loops over rows.
var rowPlains = map[string]string{
	"widen":  "for i := range lanes * vectors {\n\tdst[i] = float32(float16(x[i]))\n}",
	"narrow": "for i := range lanes * vectors {\n\tdst[i] = float16(x[i]) // to nearest even\n}",

	"sum":         "var s float32\nfor i := range n {\n\ts += x[i]\n}\nreturn s",
	"squares":     "var s float32\nfor i := range n {\n\ts = fma(x[i]-mean, x[i]-mean, s)\n}\nreturn s",
	"most":        "m := float32(math.Inf(-1))\nfor i := range n {\n\tm = max(m, x[i])\n}\nreturn m",
	"least":       "m := float32(math.Inf(1))\nfor i := range n {\n\tm = min(m, x[i])\n}\nreturn m",
	"longSquares": "var s float64\nfor i := range n {\n\ts += float64(x[i]) * float64(x[i])\n}\nreturn s",
	"sumEach": "for r := range rows {\n\tvar s float32\n\tfor i := range n {\n\t\ts += x[r*stride/4+i]\n\t}\n" +
		"\tacc[r] += float64(s)\n}",
	"sumShort": "for r := range rows { // a multiple of 4; n is at most lanes\n\tvar s float32\n\tfor i := range n {\n\t\ts += x[r*stride/4+i]\n\t}\n" +
		"\tacc[r] += float64(s)\n}",
	"longSquaresEach": "for r := range rows {\n\tfor i := range n {\n\t\tv := float64(x[r*stride/4+i])\n\t\tacc[r] += v * v\n\t}\n}",
	"longSumRows":     "for r := range rows { // in this order\n\tfor i := range n {\n\t\tacc[i] += float64(x[r*stride/4+i])\n\t}\n}",
	"longSquaresRows": "for r := range rows { // in this order\n\tfor i := range n {\n\t\tv := float64(x[r*stride/4+i])\n\t\tacc[i] += v * v\n\t}\n}",

	"expShift":    "var s float32\nfor i := range n {\n\tdst[i] = exp(x[i] - shift)\n\ts += dst[i]\n}\nreturn s",
	"expShiftSum": "var s float32\nfor i := range n {\n\ts += exp(x[i] - shift)\n}\nreturn s",
	"softmaxRows": "for r := range rows {\n\tx, dst := x[r*n:][:n], dst[r*n:][:n]\n\tpeak := slices.Max(x)\n\tvar s float32\n" +
		"\tfor i := range x {\n\t\tdst[i] = exp(x[i] - peak)\n\t\ts += dst[i]\n\t}\n\tfor i := range dst {\n\t\tdst[i] *= 1 / s\n\t}\n}",
	"logSoftmaxRows": "for r := range rows {\n\tx, dst := x[r*n:][:n], dst[r*n:][:n]\n\tpeak := slices.Max(x)\n\tvar s float32\n" +
		"\tfor i := range x {\n\t\ts += exp(x[i] - peak)\n\t}\n\tfor i := range dst {\n\t\tdst[i] = x[i] - peak - log(s)\n\t}\n}",
	"layerNormRows": "for r := range rows {\n\tx, dst := x[r*n:][:n], dst[r*n:][:n]\n\tmean := float32(float64(sum(x)) / float64(n))\n\tvar s float32\n" +
		"\tfor i := range x {\n\t\ts = fma(x[i]-mean, x[i]-mean, s)\n\t}\n\tfactor := float32(1 / math.Sqrt(float64(s)/float64(n)+epsilon))\n" +
		"\tfor i := range dst {\n\t\tdst[i] = fma((x[i]-mean)*factor, scale[i], bias[i])\n\t}\n}",
	"rmsNormRows": "for r := range rows {\n\tx, dst := x[r*n:][:n], dst[r*n:][:n]\n\tvar s float32\n" +
		"\tfor i := range x {\n\t\ts = fma(x[i], x[i], s)\n\t}\n\tfactor := float32(1 / math.Sqrt(float64(s)/float64(n)+epsilon))\n" +
		"\tfor i := range dst {\n\t\tdst[i] = x[i] * factor * scale[i]\n\t}\n}",
	"softmaxColumns": "for c := range lanes { // of a panel, whose rows are 32 elements; in the order of the rows\n\tpeak := floor\n" +
		"\tfor i := range n {\n\t\tpeak = max(peak, x[32*i+c])\n\t}\n\tvar s float32\n" +
		"\tfor i := range n {\n\t\tx[32*i+c] = exp(x[32*i+c] - peak)\n\t\ts += x[32*i+c]\n\t}\n\tfactor := min(1/s, ceiling)\n" +
		"\tfor i := range n {\n\t\tx[32*i+c] *= factor\n\t}\n}",
	"peak": "for range n {\n\tfor i := range lanes * peakFMAs {\n\t\tacc[i] = fma(zero, zero, acc[i]) // in registers\n\t}\n}",
}
