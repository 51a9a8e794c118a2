package plan

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// nameReading is what an anchor's name says.
type nameReading struct {
	fine     bool   // somebody chose it
	kept     string // what somebody chose of it, the rest being an exporter's
	stem     string // "input" of input.1: it says what the tensor is for, and what is beside it are numbers and operators
	letter   bool   // it is a letter, as in a formula
	scaffold string // what is left out, other than numbers
	number   int    // the tensor's index where the exporter numbers results, or -1
}

var (
	tensorIndex = regexp.MustCompile(`:(\d+)$`) // TensorFlow: result of an operator
	tensorFlow  = regexp.MustCompile(`^(Identity|StatefulPartitionedCall|PartitionedCall)(?:_(\d+))?(?::(\d+))?$`)
	signature   = regexp.MustCompile(`^serving_default_`) // TensorFlow: name of a signature
	traced      = regexp.MustCompile(`^onnx::`)           // PyTorch: of what reads it
	scoped      = regexp.MustCompile(`^/.*_output_\d+$`)  // PyTorch: modules and operator that made it
)

// readName takes a name apart: into what an exporter adds, numbers, names of
// operators, and words that somebody chose.
func readName(name string) nameReading {
	r := nameReading{number: -1}
	if m := tensorFlow.FindStringSubmatch(name); m != nil {
		r.scaffold, r.number = name, 0
		if m[2] != "" {
			r.number, _ = strconv.Atoi(m[2])
		} else if m[3] != "" {
			r.number, _ = strconv.Atoi(m[3])
		}
		return r
	}
	if scoped.MatchString(name) {
		r.scaffold = name
		return r
	}
	rest := name
	for _, cut := range []*regexp.Regexp{tensorIndex, signature, traced} {
		rest = cut.ReplaceAllString(rest, "")
	}
	if rest != name {
		r.scaffold = name
	}
	var roles, chosen, letters, operators, numbers int
	var stem string
	for _, w := range words(rest) {
		switch {
		case unicode.IsDigit([]rune(w)[0]):
			numbers++
		case roleWords[w]:
			roles++
			stem = w
		case operatorWords[w] || operatorWords[strings.TrimSuffix(w, "out")]:
			operators++
		case len(w) == 1:
			letters++
		default:
			chosen++
		}
	}
	switch {
	case chosen > 0 || letters > 0 && roles+operators > 0 || letters > 1:
		r.fine = rest == name
		r.kept = rest
	case letters == 1:
		r.letter = true
	case roles > 0 && numbers == 0:
		r.fine = rest == name
		r.kept = rest
		if operators == 0 {
			r.stem = stem
		}
	case roles > 0:
		r.stem = stem
		if operators > 0 {
			r.scaffold = name
		}
	case operators > 0:
		r.fine = numbers == 0 && rest == name
	}
	return r
}

// words splits a name where letters and digits meet, before capitals that
// follow small letters, and at everything else, and makes them small. Letters
// that have no capitals make words of their own kind, which are nobody's
// number.
func words(name string) []string {
	var out []string
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			out = append(out, strings.ToLower(word.String()))
			word.Reset()
		}
	}
	var last rune
	for _, c := range name {
		letter, digit := unicode.IsLetter(c), unicode.IsDigit(c)
		if !letter && !digit || digit != unicode.IsDigit(last) || unicode.IsUpper(c) && unicode.IsLower(last) {
			end()
		}
		if letter || digit {
			word.WriteRune(c)
		}
		last = c
	}
	end()
	return out
}

// wordSet returns the words of a text.
func wordSet(text string) map[string]bool {
	m := map[string]bool{}
	for w := range strings.FieldsSeq(text) {
		m[w] = true
	}
	return m
}

// roleWords say what a tensor is for, and no more.
var roleWords = wordSet("input inputs output outputs out data result results prediction predictions")

// operatorWords are words of which exporters make names: of operators and layers,
// and their own.
var operatorWords = wordSet(`
	abs acos acosh activation add addmm and argmax argmin asin asinh atan atanh attention average avg batch batchnorm bias
	bn cast ceil celu clip concat concatenate conv convolution copy cos cosh crop dense depthwise div dropout einsum elu
	embedding equal erf exp expand fc flatten floor functional gather gelu gemm global greater gru hard identity
	lambda layer leaky less linear log logistic lrn lstm matmul max maximum mean min minimum mod mul multiply neg norm
	normalization not onehot op or pad permute plus pool pow prelu quant quantize dequantize range reciprocal reduce relu
	reorder reshape resize rnn round scale scan scatter select selu sequential shape sigmoid sign sin slice softmax softplus
	softsign split sqrt squeeze stack sub subtract sum swish tan tanh tf tile times tmp top transpose unsqueeze
	upsample where xor
	call const constant default graph model network node param partitioned serving stateful tensor torch val value
	var variable onnx pred fetch feed save infer p2o`)
