package modelrt_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/ring"
)

// piece is what a model remembers of enqueued memory.
type piece struct {
	from, to               int // its samples; dummies have no callbacks
	dummy                  bool
	starts, completes, end int // calls
	wantStarts             int
	wantCompletes          int
}

// queueModel is a queue as a plain list of samples.
type queueModel struct {
	batch, room int
	values      []uint16 // of all samples ever enqueued
	pieces      []*piece
	done, ahead int // transfers
}

func (m *queueModel) add(n int, dummy bool) *piece {
	p := &piece{from: len(m.values), to: len(m.values) + n, dummy: dummy}
	m.pieces = append(m.pieces, p)
	for i := range n {
		v := uint16(p.from + i + 1)
		if dummy {
			v = 0
		}
		m.values = append(m.values, v)
	}
	return p
}

// occupied counts the pieces that are not used up.
func (m *queueModel) occupied(used int) int {
	n := 0
	for _, p := range m.pieces {
		if p.to > used {
			n++
		}
	}
	return n
}

func (m *queueModel) bytes(from, to int) []byte {
	var b []byte
	for _, v := range m.values[from:to] {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

// read is a transfer of the samples from at.
func (m *queueModel) read(at int) []byte {
	for _, p := range m.pieces {
		if p.from >= at && p.from < at+m.batch {
			p.wantStarts++
		}
		if p.to > at && p.to <= at+m.batch {
			p.wantCompletes++
		}
	}
	return m.bytes(at, at+m.batch)
}

// TestInputQueueModel compares an input queue with a list of samples,
// over random sizes of requests and random devices.
//
// Feature 57.
func TestInputQueueModel(t *testing.T) {
	for range 10 { // a prefetch in the middle of a piece takes several steps
		checkInputQueue(t)
	}
}

func checkInputQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{batch: rapid.IntRange(1, 5).Draw(t, "batch")}
		batches := rapid.IntRange(1, 3).Draw(t, "batches")
		m.room = m.batch * batches
		q, err := modelrt.NewInputQueue(m.batch, 2, batches, nil, ring.Config[struct{}]{})
		if err != nil {
			t.Fatal(err)
		}
		direct := false
		buf := make([]byte, 2*m.batch)
		same := func(what string, got, want []byte) {
			if string(got) != string(want) {
				t.Fatalf("%s: got %v, want %v", what, got, want)
			}
		}
		next := func() int { return (m.done + m.ahead) * m.batch }
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				n := rapid.IntRange(1, 3*m.batch).Draw(t, "samples")
				p := &piece{}
				d := modelrt.InputData{
					OnReadStart: func() { p.starts++ }, OnReadComplete: func() { p.completes++ },
					OnDone: func(err error) {
						if err != nil {
							t.Fatal(err)
						}
						p.end++
					},
				}
				full := m.occupied(m.done*m.batch) >= m.room
				if !full {
					p = m.add(n, false)
					d.Data = m.bytes(p.from, p.to)
				} else {
					d.Data = make([]byte, 2*n)
				}
				if err := q.TryEnqueue(d); errors.Is(err, rt.ErrQueueFull) != full || !full && err != nil {
					t.Fatalf("%v, full: %v", err, full)
				}
			},
			"flush": func(*rapid.T) {
				full := m.occupied(m.done*m.batch) >= m.room+4
				if err := q.Flush(); errors.Is(err, rt.ErrQueueFull) != full || !full && err != nil {
					t.Fatalf("%v, full: %v", err, full)
				}
				if !full {
					m.add(m.batch-len(m.values)%m.batch, true)
				}
			},
			"prefetch": func(*rapid.T) {
				ok := len(m.values)-next() >= m.batch && !direct
				if q.Prefetch(buf) != ok {
					t.Fatalf("prefetch: want %v", ok)
				}
				if ok {
					same("prefetch", buf, m.read(next()))
					m.ahead++
				}
			},
			"fetch": func(t *rapid.T) {
				if len(m.values)-next() < m.batch {
					t.Skip("it would wait")
				}
				if err := q.Fetch(context.Background(), buf); err != nil {
					t.Fatal(err)
				}
				same("fetch", buf, m.read(next()))
				m.ahead++
				direct = false
			},
			"memory": func(t *rapid.T) {
				at := next()
				if m.ahead == 0 && len(m.values) == at {
					t.Skip("it would wait")
				}
				mem, err := q.Memory(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				whole := false
				for _, p := range m.pieces {
					whole = whole || m.ahead == 0 && p.from <= at && p.to >= at+m.batch
				}
				if (mem != nil) != whole {
					t.Fatalf("memory: %v, want some: %v", mem, whole)
				}
				if whole {
					same("memory", mem, m.read(at))
					direct = true
				}
			},
			"complete": func(*rapid.T) {
				q.Complete()
				switch {
				case m.ahead > 0:
					m.ahead--
					m.done++
				case direct:
					direct = false
					m.done++
				}
			},
			"invalidate": func(*rapid.T) {
				q.InvalidatePrefetched()
				m.ahead, direct = 0, false
			},
			"": func(*rapid.T) {
				if q.Enqueued() != int64(len(m.values)) {
					t.Fatalf("%d enqueued, want %d", q.Enqueued(), len(m.values))
				}
				for i, p := range m.pieces {
					if p.dummy {
						continue
					}
					end := 0
					if p.to <= m.done*m.batch {
						end = 1
					}
					if p.starts != p.wantStarts || p.completes != p.wantCompletes || p.end != end {
						t.Fatalf("piece %d: %+v, want end %d", i, *p, end)
					}
				}
			},
		})
	})
}

// TestOutputQueueModel compares an output queue with a list of
// samples.
//
// Feature 58.
func TestOutputQueueModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &queueModel{batch: rapid.IntRange(1, 5).Draw(t, "batch")}
		batches := rapid.IntRange(1, 3).Draw(t, "batches")
		m.room = m.batch * batches
		q, err := modelrt.NewOutputQueue(m.batch, 2, batches)
		if err != nil {
			t.Fatal(err)
		}
		got := map[*piece][]byte{}
		value := uint16(0)
		var delivered []byte
		transfer := func() []byte {
			var b []byte
			for range m.batch {
				value++
				b = binary.LittleEndian.AppendUint16(b, value)
			}
			delivered = append(delivered, b...)
			return b
		}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				n := rapid.IntRange(1, 3*m.batch).Draw(t, "samples")
				full := m.occupied(m.done*m.batch) >= m.room
				p, data := &piece{}, make([]byte, 2*n)
				if !full {
					p = m.add(n, false)
					got[p] = data
				}
				err := q.TryEnqueue(modelrt.OutputData{
					Data: data, OnWriteComplete: func() { p.completes++ },
					OnDone: func(error) { p.end++ },
				})
				if errors.Is(err, rt.ErrQueueFull) != full || !full && err != nil {
					t.Fatalf("%v, full: %v", err, full)
				}
			},
			"flush": func(*rapid.T) {
				full := m.occupied(m.done*m.batch) >= m.room+4
				if err := q.Flush(); errors.Is(err, rt.ErrQueueFull) != full || !full && err != nil {
					t.Fatalf("%v, full: %v", err, full)
				}
				if !full {
					m.add(m.batch-len(m.values)%m.batch, true)
				}
			},
			"deliver": func(t *rapid.T) {
				if len(m.values)-m.done*m.batch < m.batch {
					t.Skip("it would wait")
				}
				data := transfer()
				mem, err := q.Memory(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				if mem != nil && rapid.Bool().Draw(t, "in place") {
					copy(mem, data)
				} else if err := q.Fetch(context.Background(), data); err != nil {
					t.Fatal(err)
				}
				q.Complete()
				m.done++
			},
			"": func(*rapid.T) {
				for i, p := range m.pieces {
					end := 0
					if p.to <= m.done*m.batch {
						end = 1
					}
					if p.dummy {
						continue
					}
					if p.completes != end || p.end != end {
						t.Fatalf("piece %d: %+v, want end %d", i, *p, end)
					}
					if end == 1 && string(got[p]) != string(delivered[2*p.from:2*p.to]) {
						t.Fatalf("piece %d: got %v, want %v", i, got[p], delivered[2*p.from:2*p.to])
					}
				}
			},
		})
	})
}
