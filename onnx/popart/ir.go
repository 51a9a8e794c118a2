package popart

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/popefgen/popefgen/internal/atomicfile"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// IRDumpVariable is the environment variable that names a file to which the intermediate form of a session's model is written when it is made, or could not be made.
const IRDumpVariable = "POPART_IR_DUMP"

// irFile is the form of a dump.
type irFile struct {
	Kind       string           `json:"kind"`            // of the session: inference or training
	Error      string           `json:"error,omitempty"` // why there is no session
	Doing      string           `json:"doing,omitempty"` // what was under way then
	Executable *dump.Executable `json:"executable,omitempty"`
	ONNX       []onnxNode       `json:"onnx,omitempty"` // nodes of the model, where it could not be lowered
}

// onnxNode is a node of an ONNX model.
type onnxNode struct {
	Op      string   `json:"type"`
	Domain  string   `json:"domain,omitempty"`
	Name    string   `json:"name"`
	Inputs  []string `json:"inputs"`
	Outputs []string `json:"outputs"`
}

// SerializeIR returns the intermediate form of the session's model as JSON: streams, programs, graphs with their nodes and types, and what the passes did. It has no values of weights or constants.
func (s *session) SerializeIR() (text []byte, err error) {
	err = s.locked("serialize the intermediate form", func() error {
		e, err := executableOf(context.Background(), s.model)
		if err != nil {
			return err
		}
		text, err = irFile{Kind: s.kind(), Executable: dump.Describe(e)}.bytes()
		return err
	})
	return text, err
}

func (s *session) kind() string {
	if s.training {
		return "training"
	}
	return "inference"
}

func (f irFile) bytes() ([]byte, error) {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetIndent("", " ")
	to.SetEscapeHTML(false)
	err := to.Encode(f)
	return b.Bytes(), err
}

// writeDump writes the dump of what there is, and of why there is no more. What an error leaves may be of any form.
func (k *making) writeDump(failed error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("what the failed preparation left can't be described: %v", v)
		}
	}()
	f := irFile{Kind: k.kind}
	if failed != nil {
		f.Error, f.Doing = failed.Error(), k.doing
	}
	switch {
	case k.exe != nil:
		f.Executable = dump.Describe(k.exe)
	case k.model != nil:
		for _, n := range k.model.Graph.Nodes {
			f.ONNX = append(f.ONNX, onnxNode{n.OpType, n.Domain, n.Name, n.Inputs, n.Outputs})
		}
	}
	text, err := f.bytes()
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(k.dump, text)
}
