package compile

import "github.com/popefgen/popefgen/popef"

// AskOverlap records in the model, as its engine option "overlap", that runners are to have
// three submitted requests in flight where the device moves data while it computes: one
// that is loaded, one that is computed and one that is stored.
func (r *Result) AskOverlap() {
	r.Metadata.EngineOptions = append(r.Metadata.EngineOptions, popef.Option{Name: "overlap", Value: "3"})
}
