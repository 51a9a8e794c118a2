package rest

import (
	"net/http"

	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

func (h *handler) server(q *request) error {
	return h.json(q, struct {
		Name       string   `json:"name"`
		Version    string   `json:"version"`
		Extensions []string `json:"extensions"`
	}{h.options.Name, h.options.Version, wire.Extensions(h.options.Repository != nil)})
}

// lookup finds the version that the path names.
func (h *handler) lookup(q *request) (*core.Version, error) {
	return h.core.Lookup([]byte(q.model), []byte(q.version))
}

// tensor is how metadata describes a tensor.
type tensor struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

func tensors(of []oip.Tensor) []tensor {
	all := make([]tensor, len(of))
	for i := range of {
		all[i] = tensor{of[i].Name, of[i].Type.String(), append([]int64{}, of[i].Shape...)}
	}
	return all
}

// Platform is what metadata calls what computes the models.
const Platform = "popef"

func (h *handler) metadata(q *request) error {
	v, err := h.lookup(q)
	if err != nil {
		return err
	}
	defer v.Release()
	versions := []string{v.Name}
	if q.version == "" {
		versions = h.core.Versions(v.Spec.Name)
	}
	return h.json(q, struct {
		Name     string   `json:"name"`
		Versions []string `json:"versions"`
		Platform string   `json:"platform"`
		Inputs   []tensor `json:"inputs"`
		Outputs  []tensor `json:"outputs"`
	}{v.Spec.Name, versions, Platform, tensors(v.Spec.Inputs), tensors(v.Spec.Outputs)})
}

func (h *handler) modelReady(q *request) error {
	v, err := h.lookup(q)
	if err != nil {
		return err
	}
	v.Release()
	h.reply(q, 0)
	q.w.WriteHeader(http.StatusOK)
	return nil
}

// configured is how the configuration of a model describes a tensor: sizes without that of the samples, and its type by
// another name.
type configured struct {
	Name   string  `json:"name"`
	Type   string  `json:"data_type"`
	Format string  `json:"format,omitempty"` // of inputs
	Dims   []int64 `json:"dims"`
}

func configuredTensors(spec *oip.Spec, of []oip.Tensor, format func(dims []int64) string) []configured {
	all := make([]configured, len(of))
	for i := range of {
		dims := of[i].Shape
		if spec.Samples > 0 && len(dims) > 0 {
			dims = dims[1:]
		}
		all[i] = configured{of[i].Name, "TYPE_" + of[i].Type.String(), format(dims), append([]int64{}, dims...)}
	}
	return all
}

func (h *handler) config(q *request) error {
	v, err := h.lookup(q)
	if err != nil {
		return err
	}
	defer v.Release()
	return h.json(q, struct {
		Name         string       `json:"name"`
		Platform     string       `json:"platform"`
		Backend      string       `json:"backend"`
		MaxBatchSize int          `json:"max_batch_size"`
		Input        []configured `json:"input"`
		Output       []configured `json:"output"`
	}{v.Spec.Name, Platform, "popefgen", v.Spec.Samples, configuredTensors(v.Spec, v.Spec.Inputs, wire.Format), configuredTensors(v.Spec, v.Spec.Outputs, func([]int64) string { return "" })})
}
