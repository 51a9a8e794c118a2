package wire

import "github.com/popefgen/popefgen/serve/oip"

// Extensions returns the extensions of Triton that a server has, by the names that its metadata gives them.
func Extensions(repository bool) []string {
	all := []string{"binary_tensor_data", "classification", "model_configuration", "schedule_policy", "statistics"}
	if repository {
		all = append(all, "model_repository")
	}
	return all
}

// An Extension is one of Triton's that this server does not have.
type Extension uint8

// The extensions whose calls are refused.
const (
	SharedMemory Extension = iota // of the system, CUDA or XPU
	Trace
	Logging
	Generate
)

var lacking = [...]string{
	SharedMemory: "this server shares no memory with clients: send tensors with the request; as bytes they are copied once",
	Trace:        "this server's traces are set up where it starts and not by clients: docs/serving.md says how",
	Logging:      "this server's log is set up where it starts and not by clients: docs/serving.md says how",
	Generate:     "this server has no endpoint generate: send a request to infer",
}

// Lacking is the error that a call of an extension gets which this server does not have.
func Lacking(e Extension) error { return &oip.Error{Code: oip.Unimplemented, Text: lacking[e]} }

// LoadParameter is the error about a parameter of loading a model: there is none that this server takes.
func LoadParameter(model, name string) error {
	return oip.Errorf(oip.Unimplemented, "failed to load '%.256s': parameter '%.64s' is not supported, since models are served as they are in their folder and clients can not change that", model, name)
}

// Format returns how a model's configuration names the order of the axes of an input, given the sizes of a sample: that of an image if it has three axes of
// which the first, or the last, is one or three channels. Clients that classify images go by it.
func Format(dims []int64) string {
	channels := func(n int64) bool { return n == 1 || n == 3 }
	switch {
	case len(dims) == 3 && channels(dims[0]):
		return "FORMAT_NCHW"
	case len(dims) == 3 && channels(dims[2]):
		return "FORMAT_NHWC"
	}
	return "FORMAT_NONE"
}
