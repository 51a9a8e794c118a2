// Command digits classifies scanned handwritten digits with a small
// convolutional network, through the typed runner in package classifier that
// popefgen generated from digits.onnx.
//
//	go run ./generated_examples/digits         # three scans, then all 359
//	go run ./generated_examples/digits -show 6 # six scans
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
)

//go:generate go tool popefgen compile digits.onnx -o classifier/digits.popef --batch 1 --quiet
//go:generate go tool popefgen generate -m classifier/digits.popef -o classifier -p classifier --embed --serve

func main() {
	show := flag.Int("show", 3, "how many scans to draw")
	flag.Parse()
	log.SetFlags(0)
	if err := run(os.Stdout, *show); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, show int) error {
	heldOut, err := scans.HeldOut()
	if err != nil {
		return err
	}
	ctx := context.Background()
	r, err := classifier.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()

	in, out := classifier.NewInputs(), classifier.NewOutputs()
	classify := func(s scans.Scan) (digit int, err error) {
		fill(in.Image, s)
		if err := r.Run(ctx, in, out); err != nil {
			return 0, err
		}
		return best(out.Probabilities.Data[0][:]), nil
	}

	// A few scans spread over the set, one beside the other.
	show = max(0, min(show, len(heldOut)))
	for from := 0; from < show; from += 3 {
		var cards [][]string
		for i := from; i < min(from+3, show); i++ {
			s := heldOut[(i*len(heldOut)/max(show, 1)+7)%len(heldOut)]
			if _, err := classify(s); err != nil {
				return err
			}
			cards = append(cards, card(s, out.Probabilities.Data[0]))
		}
		printCards(w, cards)
	}

	right := 0
	var wrong []string
	times := make([]time.Duration, 0, len(heldOut))
	for i, s := range heldOut {
		start := time.Now()
		digit, err := classify(s)
		if err != nil {
			return err
		}
		times = append(times, time.Since(start))
		if digit == s.Label {
			right++
		} else {
			wrong = append(wrong, fmt.Sprintf("no. %d is a %d, read as %d (%.0f %%)", i+1, s.Label, digit, 100*out.Probabilities.Data[0][digit]))
		}
	}
	slices.Sort(times)
	fmt.Fprintf(w, "%d of %d held-out scans read rightly: %.1f %%; one request took %v (median)\n",
		right, len(heldOut), 100*float64(right)/float64(len(heldOut)), times[len(times)/2].Round(100*time.Nanosecond))
	for _, s := range wrong {
		fmt.Fprintln(w, "  "+s)
	}
	return nil
}

// fill scales a scan to what the model was trained on.
func fill(image *classifier.Image, s scans.Scan) {
	for y, row := range s.Grey {
		for x, g := range row {
			image.Data[0][0][y][x] = float32(g) / 16
		}
	}
}

// best returns the index of the largest probability.
func best(p []float32) int {
	b := 0
	for i := range p {
		if p[i] > p[b] {
			b = i
		}
	}
	return b
}

const cardWidth = 24

// card draws a scan and the model's opinion of it.
func card(s scans.Scan, p [10]float32) []string {
	lines := []string{fmt.Sprintf("a scanned %d", s.Label)}
	lines = append(lines, s.Draw()...)
	first := best(p[:])
	second := (first + 1) % 10
	for d := range p {
		if d != first && p[d] > p[second] {
			second = d
		}
	}
	for _, d := range []int{first, second} {
		lines = append(lines, fmt.Sprintf("%d %-10s %5.1f %%", d, strings.Repeat("■", int(p[d]*10+0.5)), 100*p[d]))
	}
	return lines
}

func printCards(w io.Writer, cards [][]string) {
	for i := range cards[0] {
		var b strings.Builder
		for _, c := range cards {
			b.WriteString(c[i] + strings.Repeat(" ", max(0, cardWidth-len([]rune(c[i])))))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
	fmt.Fprintln(w)
}
