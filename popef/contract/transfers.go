package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/popefgen/popefgen/popef"
)

// TransfersBlob is the name of the opaque blob, JSON, with the transfers of run inputs and outputs of which a run
// makes another number than the metadata's device iterations: those of training models, whose outputs are not
// returned for every batch.
const TransfersBlob = "popefgen.transfers"

// ErrTransfers marks a [TransfersBlob] that the rest of the file does not agree with.
var ErrTransfers = errors.New("the file does not make the transfers that it claims")

// Bounds on what a blob may claim.
const (
	maxTransfers      = 1 << 31
	maxTransfersBytes = 16 << 20
)

// Transfers is how many transfers of a stream a run makes.
type Transfers struct {
	Handle string `json:"handle"` // of the stream
	Count  int64  `json:"count"`  // 1 to 2³¹
}

type transfersBlob struct {
	Version   int         `json:"version"`
	Transfers []Transfers `json:"transfers"`
}

// EncodeTransfers returns transfers as the payload of a [TransfersBlob].
func EncodeTransfers(all []Transfers) []byte {
	data, err := json.Marshal(transfersBlob{1, append([]Transfers{}, all...)})
	if err != nil {
		panic(err) // of text and numbers: no input leads here
	}
	return data
}

// Transfers returns how many transfers of a run input or output one run makes, and 1 for every other anchor.
func (c Contract) Transfers(a *Anchor) int {
	switch {
	case a.Role != RunInput && a.Role != RunOutput:
		return 1
	case a.Transfers > 0:
		return a.Transfers
	}
	return c.DeviceIterations()
}

// Transfers returns how many transfers of a field one run makes.
func (c *Callers) Transfers(f *Field) int {
	switch {
	case !f.runs():
		return 1
	case f.Transfers > 0:
		return f.Transfers
	}
	return c.Iterations
}

// uneven reports whether a field has transfers of its own.
func (c *Callers) uneven() bool {
	for i := range c.Fields {
		if c.Fields[i].Transfers > 0 {
			return true
		}
	}
	return false
}

// Uneven reports whether some run inputs and outputs have transfers of their own.
func (c Contract) Uneven() bool {
	for i := range c.Anchors {
		if c.Anchors[i].Transfers > 0 {
			return true
		}
	}
	return false
}

// readTransfers reads the model's [TransfersBlob], if it has one, into the anchors.
func (c *Contract) readTransfers(m *popef.Model) error {
	for _, b := range m.Opaques() {
		if b.Name != TransfersBlob {
			continue
		}
		if b.PayloadSize > maxTransfersBytes {
			return refuseTransfers("it has %d bytes, want at most %d", b.PayloadSize, maxTransfersBytes)
		}
		data, err := b.Bytes()
		if err != nil {
			return fmt.Errorf("opaque blob %q: %w", TransfersBlob, err)
		}
		return c.takeTransfers(data)
	}
	return nil
}

func refuseTransfers(format string, args ...any) error {
	return fmt.Errorf("opaque blob %q: %w: %s; compile the model again", TransfersBlob, ErrTransfers, fmt.Sprintf(format, args...))
}

// takeTransfers reads the payload of a blob into the anchors.
func (c *Contract) takeTransfers(data []byte) error {
	var blob transfersBlob
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&blob); err != nil {
		return refuseTransfers("it is not read as JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return refuseTransfers("there is more behind the JSON")
	}
	switch {
	case blob.Version != 1:
		return refuseTransfers("it is of version %d, and this popefgen reads version 1", blob.Version)
	case c.Family != nil || c.Branches != nil:
		return refuseTransfers("the file has several main programs, and only one can have numbers of its own")
	}
	anchors := map[string]*Anchor{}
	for i := range c.Anchors {
		if a := &c.Anchors[i]; a.Handle != "" {
			anchors[a.Handle] = a
		}
	}
	seen := map[string]bool{}
	for _, t := range blob.Transfers {
		a := anchors[t.Handle]
		switch {
		case a == nil:
			return refuseTransfers("no anchor has the stream handle %q", t.Handle)
		case a.Role != RunInput && a.Role != RunOutput:
			return refuseTransfers("anchor %q is a %v, which has no transfers in a run", a.Name, a.Role)
		case seen[t.Handle]:
			return refuseTransfers("anchor %q is there twice", a.Name)
		case t.Count < 1 || t.Count > maxTransfers:
			return refuseTransfers("anchor %q has %d transfers in a run, want 1 to %d", a.Name, t.Count, int64(maxTransfers))
		}
		seen[t.Handle] = true
		if int(t.Count) != c.DeviceIterations() {
			a.Transfers = int(t.Count)
		}
	}
	return nil
}
