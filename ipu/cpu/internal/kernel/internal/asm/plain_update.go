package main

// adamPlain is a step of Adam; numbers[k] is what stands 512·k after the pointer.
func adamPlain(decay string) string {
	return "factor, rate, decay, b1, rest1, b2, rest2, eps, c1, c2 := numbers[0], … numbers[9]\nfor i := range n { // every operation rounded\n\tg := grad[i] * factor\n" +
		"\tnewSecond[i] = v[i]*b2 + g*g*rest2\n\tnewFirst[i] = m[i]*b1 + g*rest1\n" +
		"\tx := newFirst[i] * c1 / (sqrt(newSecond[i]*c2) + eps)" + decay + "\n\tdst[i] = w[i] - x*rate\n}"
}

// updatePlains are the steps of optimizers.
var updatePlains = map[string]string{
	"adam":          adamPlain(""),
	"adamDecoupled": adamPlain(" + w[i]*decay"),
}
