package verify

import (
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// modelOf compiles members of a public model, as one model, and reads its file.
func modelOf(b *testing.B, name string, members ...compile.Sizes) *popef.Model {
	b.Helper()
	r, _ := executableOf(b, name, members...)
	data, err := r.Bytes()
	if err != nil {
		b.Fatal(err)
	}
	m, err := popef.LoadBytes(name, data)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// sessionOf opens a model of one size with memory of its own for each stream, all zeros, and
// runs it once.
func sessionOf(b *testing.B, m *popef.Model, threads int) rt.Session {
	b.Helper()
	s, err := modelrt.NewSession(b.Context(), m, rt.WithThreads(threads))
	if err != nil {
		b.Fatal(err)
	}
	for _, a := range append(s.UserInputs(), s.UserOutputs()...) {
		info, _ := s.Stream(a.Handle)
		memory, err := modelrt.NewBuffer(info, 1)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Connect(b.Context(), a.Handle, memory); err != nil {
			b.Fatal(err)
		}
	}
	perRun(b, s, 0)
	return s
}

// perRun runs a session for about that long, at least once, and returns the time of a run.
func perRun(b *testing.B, s rt.Session, d time.Duration) time.Duration {
	b.Helper()
	n, start := 0, time.Now()
	for n == 0 || time.Since(start) < d {
		if err := s.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		n++
	}
	return time.Since(start) / time.Duration(n)
}

// sizesOf is a member as it was compiled; dimensions that are open but of one size alone stand in
// dims and sizes.
func sizesOf(f *family.Family, member int, dims []string, sizes [][]int64) compile.Sizes {
	s := compile.Sizes{Dims: map[string]int64{}}
	for i, d := range dims {
		s.Dims[d] = sizes[i][0]
	}
	for i, d := range f.Dims {
		s.Dims[d.Name] = f.Members[member].Sizes[i]
	}
	return s
}

// BenchmarkFamilyMember runs the members of families of public models and the same sizes
// compiled alone by turns. The metric member/alone is the median of the ratios of turns that
// follow each other, worst that of the member for which it is largest.
func BenchmarkFamilyMember(b *testing.B) {
	for _, c := range publicFamilies {
		for threads := 1; threads <= 2; threads++ {
			b.Run(fmt.Sprintf("%s/threads=%d", c.model, threads), func(b *testing.B) {
				whole := modelOf(b, c.model, familyMembers(c.dims, c.sizes)...)
				defer whole.Close()
				f, err := family.Of(whole)
				if err != nil {
					b.Fatal(err)
				}
				var all, medians []float64
				for i := range f.Members {
					single := modelOf(b, c.model, sizesOf(f, i, c.dims, c.sizes))
					member, alone := sessionOf(b, f.Single(whole, i), threads), sessionOf(b, single, threads)
					var ratios []float64
					for range max(b.N, 3) {
						const turn = 4 * time.Millisecond
						x, y := perRun(b, member, turn), perRun(b, alone, turn)
						ratios = append(ratios, float64(x)/float64(y))
					}
					slices.Sort(ratios)
					all, medians = append(all, ratios...), append(medians, ratios[len(ratios)/2])
					member.Close()
					alone.Close()
					single.Close()
				}
				slices.Sort(all)
				b.ReportMetric(all[len(all)/2], "member/alone")
				b.ReportMetric(slices.Max(medians), "worst")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkFamilyMemory opens families of public models and their largest member alone. The
// metrics are what the process holds of each once it has run, in MiB, weights and the file
// among it, medians of several turns, and how many times as much the family takes.
func BenchmarkFamilyMemory(b *testing.B) {
	for _, c := range publicFamilies {
		b.Run(c.model, func(b *testing.B) {
			members := familyMembers(c.dims, c.sizes)
			held := func(members ...compile.Sizes) float64 {
				before := resident(b)
				m := modelOf(b, c.model, members...)
				open := m
				if f, err := family.Of(m); err != nil {
					b.Fatal(err)
				} else if f != nil {
					open = f.Single(m, len(f.Members)-1)
				}
				s := sessionOf(b, open, 1)
				after := resident(b)
				s.Close()
				m.Close()
				return float64(after-before) / (1 << 20)
			}
			var whole, alone []float64
			held(members...) // the process keeps some of what the first one needs
			for range max(b.N, 5) {
				whole, alone = append(whole, held(members...)), append(alone, held(members[len(members)-1]))
			}
			median := func(x []float64) float64 { slices.Sort(x); return x[len(x)/2] }
			b.ReportMetric(median(whole), "MiB/family")
			b.ReportMetric(median(alone), "MiB/alone")
			b.ReportMetric(median(whole)/median(alone), "times")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// resident returns what the process holds in memory that is no file's, in bytes.
func resident(b *testing.B) int64 {
	b.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Skip("only Linux tells: ", err)
	}
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return kib << 10
}
