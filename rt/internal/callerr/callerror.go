// Package callerr says of which model and replica, and in doing what, an error
// arose, each once, and keeps panics of the caller's code from spreading.
package callerr

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
)

// Subject is what errors of a session or a runner speak of.
type Subject struct {
	Model   string // name of the file
	Replica string // such as "replica 1"; "" if there is but one, or none is meant
}

// String returns the model and the replica.
func (s Subject) String() string {
	if s.Replica == "" {
		return s.Model
	}
	return s.Model + ": " + s.Replica
}

// callError says of which model and replica, and in doing what, an error arose.
// Nobody but [subject.errorf] makes one, so that a text says each of these once,
// however many calls the error has passed through.
type callError struct {
	Subject
	doing string
	err   error
}

// Errorf says in doing what err arose. What err says already of the same model
// is not said again: the replica is that of either, and what was being done is
// the outer thing and then the inner one, unless that is a part of it in words,
// as "run" is of "run samples".
func (s Subject) Errorf(doing string, err error) error {
	if all, ok := err.(*severalErrors); ok {
		out := &severalErrors{make([]error, len(all.errs))}
		for i, e := range all.errs {
			out.errs[i] = s.Errorf(doing, e)
		}
		return out
	}
	inner, ok := err.(*callError)
	if !ok || inner.Model != s.Model || s.Replica != "" && inner.Replica != "" && s.Replica != inner.Replica {
		return &callError{s, doing, err}
	}
	if inner.Replica != "" {
		s.Replica = inner.Replica
	}
	switch {
	case strings.HasPrefix(inner.doing+": ", doing+": "): // it has been here before
		doing = inner.doing
	case !strings.HasPrefix(doing+" ", inner.doing+" "):
		doing += ": " + inner.doing
	}
	return &callError{s, doing, inner.err}
}

// Without returns err for a part of an error of the same subject, which names it.
func (s Subject) Without(err error) error {
	if e, ok := err.(*callError); ok && e.Subject == s {
		return &callError{Subject{}, e.doing, e.err}
	}
	return err
}

// Error returns the likes of "affine.popef: replica 1: run: no device".
func (e *callError) Error() string {
	text := e.doing + ": " + e.err.Error()
	if e.Model != "" {
		text = e.Subject.String() + ": " + text
	}
	return text
}

// Unwrap returns the error without what was being done.
func (e *callError) Unwrap() error { return e.err }

// severalErrors are errors that arose beside each other.
type severalErrors struct{ errs []error }

// Join returns errs as one error, the only one as it is, and nil if there is
// none.
func Join(errs ...error) error {
	var all []error
	for _, err := range errs {
		switch e := err.(type) {
		case nil:
		case *severalErrors:
			all = append(all, e.errs...)
		default:
			all = append(all, err)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return &severalErrors{all}
}

// Error returns the texts behind each other, without what one has in common with
// the one before: the likes of "affine.popef: replica 0: close: no device;
// replica 1: engine stopped". Replicas with the same error are listed before it.
func (e *severalErrors) Error() string {
	type part struct {
		callError
		replicas []string
		text     string
	}
	var parts []part
	for _, err := range e.errs {
		p := part{text: err.Error()}
		if c, ok := err.(*callError); ok {
			p.callError, p.text = *c, c.err.Error()
		}
		at := slices.IndexFunc(parts, func(q part) bool { return q.Model == p.Model && q.doing == p.doing && q.text == p.text })
		if at < 0 {
			at, parts = len(parts), append(parts, p)
		}
		if q := &parts[at]; p.Replica != "" && !slices.Contains(q.replicas, p.Replica) {
			q.replicas = append(q.replicas, p.Replica)
		}
	}
	var b strings.Builder
	var last part
	say := func(now, before string) {
		if now != "" && now != before {
			b.WriteString(now + ": ")
		}
	}
	for i, p := range parts {
		switch {
		case i == 0:
		case strings.Contains(last.text, "\n"): // the stack of a panic
			b.WriteString("\n")
		default:
			b.WriteString("; ")
		}
		if p.Model != last.Model {
			last = part{}
		}
		say(p.Model, last.Model)
		say(strings.Join(p.replicas, ", "), strings.Join(last.replicas, ", "))
		say(p.doing, last.doing)
		b.WriteString(p.text)
		last = p
	}
	return b.String()
}

// Unwrap returns the errors.
func (e *severalErrors) Unwrap() []error { return e.errs }

// Also returns err and the panic of an observer that was called for it.
func Also(err, panicked error) error {
	if panicked == nil {
		return err
	}
	switch e := err.(type) {
	case nil:
		return fmt.Errorf("told of it, the observer or logger failed: %w", panicked)
	case *callError:
		return &callError{e.Subject, e.doing, Also(e.err, panicked)}
	case *severalErrors:
		errs := slices.Clone(e.errs)
		errs[len(errs)-1] = Also(errs[len(errs)-1], panicked)
		return &severalErrors{errs}
	}
	return fmt.Errorf("%w; told of it, the observer or logger failed: %w", err, panicked)
}

// Guarded calls f, which is code of the caller or calls some.
func Guarded(f func() error) (err error) {
	defer ipu.Guard(&err)
	return f()
}

// Sheltered is guarded for calls that others have to follow whatever comes: f
// has a goroutine of its own, so that [runtime.Goexit] in it, which nothing can
// keep from ending a goroutine, is an error too.
func Sheltered(f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := ErrExit
		defer func() { result <- err }()
		err = Guarded(f)
	}()
	return <-result
}

// ErrExit is the error of a request that never returned.
var ErrExit = fmt.Errorf("%w: the goroutine was ended by runtime.Goexit", ipu.ErrPanic)

// ModelName names a model in messages.
func ModelName(m *popef.Model) string {
	if files := m.Files(); len(files) > 0 {
		return printable.Line(filepath.Base(files[0]))
	}
	return "model"
}
