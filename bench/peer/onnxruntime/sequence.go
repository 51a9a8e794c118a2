package onnxruntime

import (
	"errors"
	"fmt"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/popefgen/popefgen/bench/peer"
)

// sequence is a session of a model with dynamic axes, with the values of requests of
// several sizes.
type sequence struct {
	session  *ort.DynamicAdvancedSession
	in, out  [][]ort.Value // by request
	results  []value       // outputs of the last request
	released []ort.Value
}

// OpenSequence makes a model with dynamic axes ready to run so many requests, of whatever sizes,
// one after the other: a run is all of them. Each request's values are made once.
func OpenSequence(model []byte, requests []peer.Case, threads int) (_ peer.Session, err error) {
	s := &sequence{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: ONNX Runtime: %w", requests[0].Name, err), s.Close())
		}
	}()
	options, err := sessionOptions(threads)
	if err != nil {
		return nil, err
	}
	defer options.Destroy()
	var names [2][]string
	for k := range requests {
		var values [2][]ort.Value
		s.results = s.results[:0]
		for i, tensors := range [][]peer.Tensor{requests[k].Inputs, requests[k].Outputs} {
			for j := range tensors {
				v, err := newValue(&tensors[j])
				if err != nil {
					return nil, fmt.Errorf("tensor %q: %w", tensors[j].Name, err)
				}
				s.released = append(s.released, v.Value)
				values[i] = append(values[i], v.Value)
				if k == 0 {
					names[i] = append(names[i], tensors[j].Name)
				}
				if i == 1 {
					s.results = append(s.results, v)
				}
			}
		}
		s.in, s.out = append(s.in, values[0]), append(s.out, values[1])
	}
	s.session, err = ort.NewDynamicAdvancedSessionWithONNXData(model, names[0], names[1], options)
	return s, err
}

func (s *sequence) Run() error {
	for i := range s.in {
		if err := s.session.Run(s.in[i], s.out[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *sequence) Outputs() ([][]byte, error) {
	out := make([][]byte, len(s.results))
	for i, v := range s.results {
		out[i] = v.bytes()
	}
	return out, nil
}

func (s *sequence) Close() error {
	var err error
	if s.session != nil {
		err = s.session.Destroy()
	}
	for _, v := range s.released {
		err = errors.Join(err, v.Destroy())
	}
	return err
}
