package kernel

// attentionKernels are the binders of the operators on attention.
var attentionKernels = map[string]binder{
	"Attention":       widened(bindAttention),
	"ViewedAttention": bindViewedAttention,
	"LinearAttention": widened(bindLinearAttention),
}

// attentionTables declares the tables of their kernels.
var attentionTables = map[string]declared{
	"Attention":       attentionTableBytes,
	"ViewedAttention": viewedAttentionTableBytes,
}
