package ipu

// Stateful is an [Engine] that knows which of its inputs are only where a state
// begins: tensors that programs change after others have set them, such as the
// weights of a model that trains.
type Stateful interface {
	Engine
	// State returns the handles of the streams from which the given programs
	// set tensors that other programs compute anew, in the order of Streams. Running the given programs once more therefore throws away what
	// the others have made of them.
	State(load []int) []string
}
