package metrics

import (
	"math"
	"net/http"
	"strconv"
	"strings"
)

// ContentType is that of the text that Append writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Append writes the metrics of the tables in the text format of Prometheus.
func Append(b []byte, s *Snapshot, tables ...[]Metric) []byte {
	for _, table := range tables {
		for i := range table {
			b = table[i].append(b, s)
		}
	}
	return b
}

// Handler answers with the text of a snapshot.
func Handler(snapshot func() *Snapshot, tables ...[]Metric) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", ContentType)
		_, _ = w.Write(Append(nil, snapshot(), tables...))
	})
}

func (m *Metric) append(b []byte, s *Snapshot) []byte {
	header := false
	begin := func() {
		if !header {
			header = true
			b = append(b, "# HELP "+m.Name+" "+m.Help+"\n# TYPE "+m.Name+" "+m.Kind.String()+"\n"...)
		}
	}
	m.Each(s, func(v float64, labels ...string) {
		begin()
		b = m.line(b, "", labels, "", v)
	}, func(h *Histogram, labels ...string) {
		begin()
		total := uint64(0)
		for i, c := range h.Counts {
			total += c
			most := math.Inf(1)
			if i < len(h.Bounds) {
				most = h.Bounds[i]
			}
			b = m.line(b, "_bucket", labels, number64(most), float64(total))
		}
		b = m.line(b, "_sum", labels, "", h.Sum)
		b = m.line(b, "_count", labels, "", float64(total))
	})
	return b
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (m *Metric) line(b []byte, suffix string, labels []string, most string, v float64) []byte {
	b = append(append(b, m.Name...), suffix...)
	sep := byte('{')
	for i, l := range labels {
		b = append(append(append(b, sep), m.Labels[i]...), `="`...)
		b = append(append(b, escape.Replace(strings.ToValidUTF8(l, "�"))...), '"')
		sep = ','
	}
	if most != "" {
		b = append(append(append(append(b, sep), `le="`...), most...), '"')
		sep = ','
	}
	if sep == ',' {
		b = append(b, '}')
	}
	b = append(append(b, ' '), number64(v)...)
	return append(b, '\n')
}

func number64(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
