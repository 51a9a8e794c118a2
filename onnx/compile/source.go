package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/popef"
)

// SourceBlob is the name of the opaque blob in which a compiled model keeps
// its [Source], as JSON. Nothing but people reads it.
const SourceBlob = "popefgen.source"

// ErrSource marks a [SourceBlob] that can't be read.
var ErrSource = errors.New("it does not say of what the model was compiled")

// Source says of what ONNX model a model was compiled.
type Source struct {
	Producer string        `json:"producer,omitempty"` // what wrote the ONNX model, with its version
	IR       int64         `json:"ir,omitempty"`       // version of the ONNX format
	Opsets   []SourceOpset `json:"opsets,omitempty"`
}

// SourceOpset is an operator set that the ONNX model imports.
type SourceOpset struct {
	Domain  string `json:"domain"` // "ai.onnx" for ONNX's own
	Version int64  `json:"version"`
}

// Bounds on what is kept and read of a source.
const (
	maxProducer    = 200
	maxOpsets      = 32
	maxSourceBytes = 64 << 10
)

// SourceOf says of what m is. Text is cut at a length that no real model has.
func SourceOf(m *onnx.Model) Source {
	s := Source{Producer: strings.TrimSpace(m.ProducerName + " " + m.ProducerVersion), IR: m.IRVersion}
	if len(s.Producer) > maxProducer {
		s.Producer = strings.ToValidUTF8(s.Producer[:maxProducer], "") + "…"
	}
	for i, o := range m.Opsets {
		if i == maxOpsets {
			break
		}
		domain := o.Domain
		if domain == "" {
			domain = "ai.onnx"
		}
		s.Opsets = append(s.Opsets, SourceOpset{domain[:min(len(domain), maxProducer)], o.Version})
	}
	return s
}

// ReadSource returns what m was compiled of. ok is false if m does not say:
// it was not made by this package, or by an older one. The error wraps
// [ErrSource].
func ReadSource(m *popef.Model) (s Source, ok bool, err error) {
	for _, b := range m.Opaques() {
		if b.Name != SourceBlob {
			continue
		}
		data, err := io.ReadAll(io.LimitReader(b.Open(), maxSourceBytes))
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			return Source{}, false, fmt.Errorf("opaque blob %q: %w: %w", SourceBlob, ErrSource, err)
		}
		return s, true, nil
	}
	return Source{}, false, nil
}

// encode returns the blob's bytes.
func (s Source) encode() ([]byte, error) { return json.Marshal(s) }
