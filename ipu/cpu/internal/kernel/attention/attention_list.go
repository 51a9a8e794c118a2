package attention

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on attention.
var Kernels = map[string]tensor.Binder{
	"Attention":       vec.Widened(bindAttention),
	"ViewedAttention": bindViewedAttention,
	"LinearAttention": vec.Widened(bindLinearAttention),

	"AttentionGradient": vec.Widened(bindAttentionGradient),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"Attention":         attentionTableBytes,
	"AttentionGradient": attentionGradientTableBytes,
	"ViewedAttention":   viewedAttentionTableBytes,
}
