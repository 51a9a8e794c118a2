// Command numbers reads lines of handwritten digits: numbers of one to eight digits
// of different widths, by one network that was compiled for several widths and
// batch sizes. It draws what it reads.
//
//	go run ./generated_examples/numbers             # eight lines, and what all of them take
//	go run ./generated_examples/numbers -lines 96   # all of them
package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/generated_examples/numbers/reader"
)

//go:generate go tool popefgen compile numbers.onnx -o reader/numbers.popef --batch 1,4 --dim width=16,32,48,64,80 --pad width=image:0,mask:0 --quiet
//go:generate go tool popefgen generate -m reader/numbers.popef -o reader -p reader --embed

//go:embed lines.txt
var scans string

func main() {
	lines := flag.Int("lines", 8, "how many lines to draw")
	flag.Parse()
	log.SetFlags(0)
	if err := run(os.Stdout, *lines); err != nil {
		log.Fatal(err)
	}
}

// height is how many rows of pixels a line has.
const height = 8

// line is a picture of a number.
type line struct {
	number string
	width  int
	pixels [height][]float32 // 0 is white, 1 black
}

// parse reads pictures as train.py writes them.
func parse(text string) ([]line, error) {
	var all []line
	s := bufio.NewScanner(strings.NewReader(text))
	s.Scan() // what the file is
	for s.Scan() {
		l := line{number: s.Text()}
		for y := range l.pixels {
			if !s.Scan() {
				return nil, errors.New("the last line has too few rows")
			}
			for _, c := range s.Bytes() {
				l.pixels[y] = append(l.pixels[y], float32(c-'a')/16)
			}
			if l.width = len(l.pixels[0]); len(l.pixels[y]) != l.width {
				return nil, fmt.Errorf("line %s: row %d has %d pixels, and the first %d", l.number, y, len(l.pixels[y]), l.width)
			}
		}
		all = append(all, l)
	}
	return all, s.Err()
}

func run(w io.Writer, draw int) error {
	lines, err := parse(scans)
	if err != nil {
		return err
	}
	r, err := reader.Open(context.Background())
	if err != nil {
		return err
	}
	defer r.Close()
	m := &numbers{r: r, in: reader.NewInputs(1, 16), out: reader.NewOutputs()}

	right := 0
	start := time.Now()
	for i := range lines {
		if err := m.read(lines[i : i+1]); err != nil {
			return err
		}
		got := m.number(0, lines[i].width)
		if got == lines[i].number {
			right++
		}
		if i < draw {
			show(w, &lines[i], got)
		}
	}
	single := time.Since(start)

	// Four at a time, those of about the same width together: a batch is as wide as its widest.
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.width, b.width) })
	start = time.Now()
	for i := 0; i < len(lines); i += 4 {
		if err := m.read(lines[i:min(i+4, len(lines))]); err != nil {
			return err
		}
	}
	four := time.Since(start)
	n := time.Duration(len(lines))
	fmt.Fprintf(w, "%d of %d lines read without a mistake; %v a line, %v four at a time\n",
		right, len(lines), (single / n).Round(100*time.Nanosecond), (four / n).Round(100*time.Nanosecond))
	return nil
}

// numbers reads lines with memory that it uses again.
type numbers struct {
	r   *reader.Runner
	in  *reader.Inputs
	out *reader.Outputs
}

// read computes the scores of lines, which may have different widths.
func (m *numbers) read(lines []line) error {
	width := 0
	for i := range lines {
		width = max(width, lines[i].width)
	}
	m.in.Image.Resize(len(lines), width)
	m.in.Mask.Resize(len(lines), width)
	clear(m.in.Image.Flat())
	clear(m.in.Mask.Flat())
	for i := range lines {
		for y, row := range lines[i].pixels {
			for x, v := range row {
				*m.in.Image.At(i, 0, y, x) = v
			}
		}
		for x := range lines[i].width {
			*m.in.Mask.At(i, 0, 0, x) = 1
		}
	}
	return m.r.Run(context.Background(), m.in, m.out)
}

// number returns what was read of line i: the best digit of each column, without
// columns that have none and those that go on with the last one.
func (m *numbers) number(i, width int) string {
	const none = 10
	var digits []byte
	last := none
	for x := range width / 2 {
		best := 0
		scores := m.out.Scores.At(i, x)
		for k, v := range scores {
			if v > scores[best] {
				best = k
			}
		}
		if best != none && best != last {
			digits = append(digits, byte('0'+best))
		}
		last = best
	}
	return string(digits)
}

// show draws a line and what was read of it.
func show(w io.Writer, l *line, got string) {
	shades := []rune(" ░▒▓█")
	for _, row := range l.pixels {
		var b strings.Builder
		for _, v := range row {
			b.WriteRune(shades[int(v*float32(len(shades)-1)+0.5)])
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	if got == l.number {
		fmt.Fprintf(w, "%d pixels wide: %s\n\n", l.width, got)
	} else {
		fmt.Fprintf(w, "%d pixels wide: %s, and it is %s\n\n", l.width, got, l.number)
	}
}
