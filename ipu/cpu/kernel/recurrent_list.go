package kernel

// recurrentKernels are the binders of the operators on recurrent networks.
var recurrentKernels = map[string]binder{
	"LSTM": widened(bindRecurrent),
	"GRU":  widened(bindRecurrent),
	"RNN":  widened(bindRecurrent),
}
