package op

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// Signature says how nodes of one form of an operator are written: what the table of operators needs not
// know to lower them.
type Signature struct {
	Name       string // with the domain in front where it is not ONNX's own
	Version    int64  // in which the form begins
	Until      int64  // in which the next one begins, or in which the operator is dropped; 0 if there is neither
	Newest     bool   // there is no newer form
	Operands   []Formal
	Results    []Formal
	Attributes []Formal // in the order of the form
}

// Formal is an operand, a result or an attribute of a signature.
type Formal struct {
	Name     string
	Optional bool  // it may be left out
	Repeats  bool  // it stands for any number of operands or results
	From     int64 // the version from which on there is one, 0 for that of the form
	Until    int64 // the first version without it, 0 if there is none
}

// exceptions are the signatures that the table does not say: by operator, "VERSION: OPERANDS -> RESULTS" for forms in which an operand
// may be left out, that have not all operands of the definition, or give something else than one result. '?' marks what may be
// left out, '…' what there may be several of, '@' the version from which on there is one. A text without a version is that of all forms.
var exceptions = map[string]string{
	"Attention":                 "Q K V attn_mask? past_key? past_value? nonpad_kv_seqlen?@24 -> Y present_key? present_value? qk_matmul_output?",
	"BatchNormalization":        "1: X scale B input_mean input_var -> Y mean? var? saved_mean? saved_var?; 7: X scale B input_mean input_var -> Y mean? var? saved_mean? saved_var?; 14: X scale B input_mean input_var -> Y running_mean? running_var?",
	"CausalConvWithState":       "input weight bias? past_state? -> output present_state?",
	"Clip":                      "1: input; 11: input min? max?",
	"Conv":                      "X W B?",
	"ConvInteger":               "x w x_zero_point? w_zero_point?",
	"ConvTranspose":             "X W B?",
	"DFT":                       "17: input dft_length?; 20: input dft_length? axis?",
	"DeformConv":                "X W offset B? mask?",
	"DequantizeLinear":          "x x_scale x_zero_point?",
	"Dropout":                   "1: data -> output mask?; 12: data ratio? training_mode? -> output mask?",
	"DynamicQuantizeLinear":     "x -> y y_scale y_zero_point",
	"GRU":                       "X W R B? sequence_lens? initial_h? -> Y? Y_h?",
	"Gemm":                      "A B C?",
	"If":                        "cond -> outputs…",
	"LSTM":                      "X W R B? sequence_lens? initial_h? initial_c? P? -> Y? Y_h? Y_c?",
	"LayerNormalization":        "X Scale B? -> Y Mean? InvStdDev?",
	"LinearAttention":           "query key value past_state? decay? beta? erase? -> output present_state?",
	"Loop":                      "M? cond? v_initial… -> v_final_and_scan_outputs…",
	"MatMulInteger":             "A B a_zero_point? b_zero_point?",
	"MaxPool":                   "X -> Y Indices?",
	"MaxUnpool":                 "X I output_shape?",
	"NegativeLogLikelihoodLoss": "input target weight?",
	"NonMaxSuppression":         "boxes scores max_output_boxes_per_class? iou_threshold? score_threshold?",
	"Pad":                       "1: data; 11: data pads constant_value? axes?@18",
	"QLinearConv":               "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?",
	"QuantizeLinear":            "x y_scale y_zero_point?",
	"RNN":                       "X W R B? sequence_lens? initial_h? -> Y? Y_h?",
	"ReduceL1":                  reduced,
	"ReduceL2":                  reduced,
	"ReduceLogSum":              reduced,
	"ReduceLogSumExp":           reduced,
	"ReduceMax":                 reduced,
	"ReduceMean":                reduced,
	"ReduceMin":                 reduced,
	"ReduceProd":                reduced,
	"ReduceSum":                 "1: data; 13: data axes?",
	"ReduceSumSquare":           reduced,
	"Reshape":                   "1: data; 5: data shape",
	"Resize":                    "10: X scales; 11: X roi? scales? sizes?",
	"RotaryEmbedding":           "X cos_cache sin_cache position_ids?",
	"STFT":                      "signal frame_step window? frame_length?",
	"Scan":                      "8: sequence_lens? initial_state_and_scan_inputs… -> final_state_and_scan_outputs…; 9: initial_state_and_scan_inputs… -> final_state_and_scan_outputs…",
	"Slice":                     "1: data; 10: data starts ends axes? steps?",
	"SoftmaxCrossEntropyLoss":   "scores labels weights? -> output log_prob?",
	"Split":                     "1: input -> outputs…; 13: input split? -> outputs…",
	"Squeeze":                   "1: data; 13: data axes?",
	"TensorScatter":             "past_cache update write_indices?",
	"TopK":                      "1: X -> Values Indices; 10: X K -> Values Indices",
	"Trilu":                     "input k?",
	"Unique":                    "X -> Y indices? inverse_indices? counts?",
	"Unsqueeze":                 "1: data; 13: data axes",
	"Upsample":                  "1: X; 7: X; 9: X scales",

	"ai.graphcore.GroupNormalization":   "X scale bias -> Y mean? inverse_std_dev?",
	"ai.graphcore.LSTM":                 "X W B? S? sequence_lens? -> Y cell_state?",
	"ai.onnx.preview.training.Adagrad":  "R T inputs… -> outputs…",
	"ai.onnx.preview.training.Adam":     "R T inputs… -> outputs…",
	"ai.onnx.preview.training.Gradient": "Inputs… -> Outputs…",
	"ai.onnx.preview.training.Momentum": "R T inputs… -> outputs…",
}

const reduced = "1: data; 18: data axes?"

// spans are attributes that an operator has in some of a form's versions only: "NAME@FROM" or "NAME@-UNTIL", with "VERSION:" before those of
// one form. The lowering takes them in all: files are written with less care than that.
var spans = map[string]string{
	"ArgMax": "select_last_index@12", "ArgMin": "select_last_index@12",
	"AveragePool":        "ceil_mode@10 count_include_pad@7 dilations@19",
	"BatchNormalization": "7: spatial@-9",
	"Cast":               "round_mode@24 saturate@19", "CastLike": "round_mode@24 saturate@19",
	"Constant":         "sparse_value@11 value_float@12 value_floats@12 value_int@12 value_ints@12 value_string@12 value_strings@12",
	"DepthToSpace":     "mode@11",
	"DequantizeLinear": "axis@13 block_size@21 output_dtype@23",
	"Dropout":          "1: is_test@-7",
	"GRU":              "layout@14 linear_before_reset@3 output_sequence@-7",
	"GatherND":         "batch_dims@12",
	"Gemm":             "broadcast@-7",
	"LSTM":             "layout@14 output_sequence@-7",
	"LpPool":           "2: ceil_mode@18 dilations@18",
	"MaxPool":          "ceil_mode@10 dilations@10 storage_order@8",
	"Pad":              "1: paddings@-2 pads@2",
	"QuantizeLinear":   "axis@13 block_size@21 output_dtype@21 precision@23 saturate@19",
	"RNN":              "layout@14 output_sequence@-7",
	"Reshape":          "5: allowzero@14",
	"Resize":           "11: antialias@18 axes@18 keep_aspect_ratio_policy@18",
	"ScatterElements":  "reduction@16",
	"ScatterND":        "reduction@16",
	"Shape":            "end@15 start@15",
	"Split":            "13: num_outputs@18",
	"TopK":             "10: largest@11 sorted@11",
}

// Signatures returns the signatures of all forms by operator, ascending by version. Nothing may change them.
var Signatures = sync.OnceValue(func() map[string][]*Signature {
	all := make(map[string][]*Signature, len(table.Operators))
	for name, d := range table.Operators {
		all[name] = signaturesOf(name, d)
	}
	return all
})

func signaturesOf(name string, d *lower.Definition) (list []*Signature) {
	for i := range d.Forms {
		f := &d.Forms[i]
		if len(list) > 0 {
			list[len(list)-1].Until = f.Version
		}
		if f.Lower == nil {
			continue
		}
		s := &Signature{Name: name, Version: f.Version, Results: []Formal{{Name: "result"}}}
		if text := forForm(exceptions[name], f.Version); text != "" {
			operands, results, several := strings.Cut(text, "->")
			s.Operands = formals(operands)
			if several {
				s.Results = formals(results)
			}
		} else {
			for _, o := range f.Operands {
				s.Operands = append(s.Operands, Formal{Name: o.Name, Repeats: o.Repeats})
			}
		}
		spanned := formals(forForm(spans[name], f.Version))
		for _, a := range f.Attributes {
			formal := Formal{Name: a.Name, Optional: !a.Required}
			for _, x := range spanned {
				if x.Name == a.Name {
					formal.From, formal.Until = x.From, x.Until
				}
			}
			s.Attributes = append(s.Attributes, formal)
		}
		list = append(list, s)
	}
	list[len(list)-1].Newest = true
	return list
}

// Method returns the name of the method of package onnx/build that adds nodes of the form: the operator's for the newest one, and that
// with the version for the others.
func (s *Signature) Method() string {
	name := s.Name[strings.LastIndexByte(s.Name, '.')+1:]
	if !s.Newest {
		name += fmt.Sprintf("V%d", s.Version)
	}
	return name
}

// forForm returns what a text says about the form that begins with a version.
func forForm(text string, version int64) string {
	for part := range strings.SplitSeq(text, ";") {
		number, of, ok := strings.Cut(part, ":")
		if !ok {
			return text
		}
		if v, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64); err != nil {
			panic(fmt.Sprintf("signature %q: %v", text, err))
		} else if v == version {
			return of
		}
	}
	return ""
}

func formals(text string) (list []Formal) {
	for _, word := range strings.Fields(text) {
		var f Formal
		name, span, _ := strings.Cut(word, "@")
		from, until, _ := strings.Cut(span, "-")
		f.From, f.Until = versionOf(from), versionOf(until)
		name, f.Repeats = strings.CutSuffix(name, "…")
		f.Name, f.Optional = strings.CutSuffix(name, "?")
		list = append(list, f)
	}
	return list
}

func versionOf(text string) int64 {
	if text == "" {
		return 0
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return v
}
