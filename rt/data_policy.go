package rt

// DataPolicy says whose data an input gets that the model's files carry data
// for.
type DataPolicy uint8

// The data policies.
const (
	UseFileData DataPolicy = iota // the files', if there is any
	UseUserData                   // the caller's, who must connect the input
)
