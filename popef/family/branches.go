package family

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/popef"
)

// BranchesBlob is the name of the opaque blob that describes a fused model, as JSON.
const BranchesBlob = "popefgen.branches"

// ErrBranches marks every error by which [BranchesOf] refuses a blob: it claims branches that the
// file does not hold.
var ErrBranches = errors.New("the file does not hold the branches that it claims")

// Bounds on what a blob may claim.
const (
	MaxBranches   = 256
	maxBranchName = 64
)

// Branch is one of the models of which a fused model was made. It has a main program of its own, and
// the run inputs and outputs that this moves are moved by no other. In the file they have the names
// that they had in its model, with the name of the branch and a slash in front.
type Branch struct {
	Name    string
	Program uint32
	Anchors []int // run inputs and then run outputs: indices in the metadata's anchors
}

// Prefix is what the names of the branch's run inputs and outputs begin with.
func (b *Branch) Prefix() string { return b.Name + "/" }

// Single returns a fused model as the model of one branch, whose run inputs and outputs have the names
// that they had there. It lives until m is closed.
func (b *Branch) Single(m *popef.Model) *popef.Model {
	one := m.Select(b.Program)
	one.Metadata.Anchors = slices.Clone(one.Metadata.Anchors)
	for _, i := range b.Anchors {
		a := &one.Metadata.Anchors[i]
		a.Name = strings.TrimPrefix(a.Name, b.Prefix())
	}
	return one
}

// CheckBranchName returns why no branch can have that name: generated code is called after it.
func CheckBranchName(name string) error {
	letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
	switch {
	case name == "":
		return errors.New("the name of a branch is empty, want one such as \"detector\"")
	case len(name) > maxBranchName:
		return fmt.Errorf("the name of a branch, %.20q…, has %d characters, want at most %d", name, len(name), maxBranchName)
	case !letter(rune(name[0])) || strings.ContainsFunc(name, func(r rune) bool { return !letter(r) && r != '_' && (r < '0' || r > '9') }):
		return fmt.Errorf("branch %q: Go code is called after it, want a letter and then letters, digits and underscores", name)
	}
	return nil
}

// CheckBranchNames is [CheckBranchName] of all branches, which must differ in more than capitals
// and underscores: Go names made of them do.
func CheckBranchNames(names []string) error {
	switch n := len(names); {
	case n == 0:
		return errors.New("there is no branch, want at least one")
	case n > MaxBranches:
		return fmt.Errorf("there are %d branches, want at most %d", n, MaxBranches)
	}
	first := map[string]string{}
	for _, name := range names {
		if err := CheckBranchName(name); err != nil {
			return err
		}
		key := strings.ToLower(strings.ReplaceAll(name, "_", ""))
		switch other, ok := first[key]; {
		case ok && other == name:
			return fmt.Errorf("two branches are called %q, want a name for each", name)
		case ok:
			return fmt.Errorf("the branches %q and %q would have the same name in Go, want names that differ in more than capitals and underscores", other, name)
		}
		first[key] = name
	}
	return nil
}

// branchesBlob is what stands in the file.
type branchesBlob struct {
	Version  int          `json:"version"`
	Branches []branchBlob `json:"branches"`
}

type branchBlob struct {
	Name    string `json:"name"`
	Program uint32 `json:"program"`
}

// EncodeBranches returns branches as the payload of a blob. What their anchors say is not in it.
func EncodeBranches(all []Branch) []byte {
	b := branchesBlob{Version: 1, Branches: []branchBlob{}}
	for i := range all {
		b.Branches = append(b.Branches, branchBlob{all[i].Name, all[i].Program})
	}
	data, err := json.Marshal(b)
	if err != nil {
		panic(err) // of text and numbers: no input leads here
	}
	return data
}

// BranchesOf returns the branches of a fused model, in the order in which they were given; nil if m is
// none. If the blob [BranchesBlob] claims branches that the file does not hold the error wraps
// [ErrBranches].
func BranchesOf(m *popef.Model) ([]Branch, error) {
	data, err := opaque(m, BranchesBlob, func(size int64) error {
		return refuseBranches("it has %d bytes, want at most %d", size, maxBytes)
	})
	if data == nil || err != nil {
		return nil, err
	}
	if slices.ContainsFunc(m.Opaques(), func(b *popef.Blob) bool { return b.Name == BlobName }) {
		return nil, refuseBranches("the opaque blob %q claims a family besides", BlobName)
	}
	return BranchesOfMetadata(&m.Metadata, func(name string) bool { _, ok := m.Data(name); return ok }, data)
}

// opaque returns the payload of the blob of that name, nil if there is none.
func opaque(m *popef.Model, name string, large func(size int64) error) ([]byte, error) {
	for _, b := range m.Opaques() {
		if b.Name != name {
			continue
		}
		if b.PayloadSize > maxBytes {
			return nil, large(b.PayloadSize)
		}
		data, err := b.Bytes()
		if err != nil {
			return nil, fmt.Errorf("opaque blob %q: %w", name, err)
		}
		return append([]byte{}, data...), nil
	}
	return nil, nil
}

// refuseBranches returns an error that wraps [ErrBranches].
func refuseBranches(format string, args ...any) error {
	return fmt.Errorf("opaque blob %q: %w: %s; compile the model again, or write the file without the blob", BranchesBlob, ErrBranches, fmt.Sprintf(format, args...))
}

// BranchesOfMetadata is [BranchesOf] for what stands in a file: its metadata, which names the files carry
// data for, and the payload of the blob.
func BranchesOfMetadata(meta *popef.Metadata, carries func(name string) bool, data []byte) ([]Branch, error) {
	var b branchesBlob
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&b); err != nil {
		return nil, refuseBranches("it is not read as JSON: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refuseBranches("there is more behind the JSON")
	}
	if b.Version != 1 {
		return nil, refuseBranches("it is of version %d, and this popefgen reads version 1", b.Version)
	}
	names := make([]string, len(b.Branches))
	for i := range b.Branches {
		names[i] = b.Branches[i].Name
	}
	if err := CheckBranchNames(names); err != nil {
		return nil, refuseBranches("%v", err)
	}
	if n := meta.DeviceIterations; n > 1 {
		return nil, refuseBranches("the file makes %d device iterations, and a branch makes one", n)
	}
	run := runAnchors(meta, carries)
	of := map[uint32]string{} // branches by program
	var out []Branch
	for _, x := range b.Branches {
		anchors, ok := run[x.Program]
		switch {
		case !ok:
			return nil, refuseBranches("branch %q is program %d, which is no main program of the program flow %v", x.Name, x.Program, meta.ProgramFlow.Main)
		case of[x.Program] != "":
			return nil, refuseBranches("branches %q and %q are both program %d", of[x.Program], x.Name, x.Program)
		}
		of[x.Program] = x.Name
		out = append(out, Branch{x.Name, x.Program, anchors})
	}
	for _, p := range meta.ProgramFlow.Main {
		if of[p] == "" {
			return nil, refuseBranches("main program %d is no branch", p)
		}
	}
	if len(meta.ProgramFlow.Main) != len(out) {
		return nil, refuseBranches("the program flow %v has a program twice", meta.ProgramFlow.Main)
	}
	for i := range out {
		if err := out[i].check(meta); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// check holds the anchors of a branch against what the branch must be: by their names no other branch
// moves them.
func (b *Branch) check(meta *popef.Metadata) error {
	seen := map[key]bool{}
	for _, i := range b.Anchors {
		a := &meta.Anchors[i]
		if short, ok := strings.CutPrefix(a.Name, b.Prefix()); !ok || short == "" {
			return refuseBranches("branch %q moves the %s %q, which is not called %sNAME", b.Name, a.Type, a.Name, b.Prefix())
		}
		id := key{a.Name, a.Type}
		if seen[id] {
			return refuseBranches("branch %q moves two %ss %q", b.Name, a.Type, a.Name)
		}
		seen[id] = true
	}
	return nil
}

// BranchGoName returns the name of a branch in Go, in names such as RunDetector: words that underscores
// separate get a capital. Only between two digits the underscore stays.
func BranchGoName(name string) string {
	var b strings.Builder
	digit := func(s string, i int) bool { return s[i] >= '0' && s[i] <= '9' }
	for word := range strings.SplitSeq(name, "_") {
		if word == "" {
			continue
		}
		if s := b.String(); s != "" && digit(s, len(s)-1) && digit(word, 0) {
			b.WriteByte('_')
		}
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}
