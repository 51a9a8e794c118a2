// Command words invents English words, letter by letter, with a recurrent
// network whose state a stream keeps: hidden and cell state that come out of one
// request go into the next, without being copied.
//
//	go run ./generated_examples/words                       # twelve words
//	go run ./generated_examples/words -begin pop -words 5   # five that begin with "pop"
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/popefgen/popefgen/generated_examples/words/letters"
)

//go:generate go tool popefgen compile words.onnx -o letters/words.popef --quiet
//go:generate go tool popefgen generate -m letters/words.popef -o letters -p letters --embed --state hidden_out=hidden --state cell_out=cell

func main() {
	var o options
	flag.IntVar(&o.words, "words", 12, "how many words to invent")
	flag.StringVar(&o.begin, "begin", "", "letters that every word begins with")
	flag.Float64Var(&o.temperature, "temperature", 0.8, "how daring: near 0 always the likeliest letter, 1 as often as in English")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the random choice")
	flag.Parse()
	log.SetFlags(0)
	if err := run(os.Stdout, o); err != nil {
		log.Fatal(err)
	}
}

type options struct {
	words       int
	begin       string
	temperature float64
	seed        uint64
}

// longest bounds an invented word.
const longest = 24

func run(w io.Writer, o options) error {
	if !(o.temperature > 0) {
		return errors.New("-temperature: want a number above 0")
	}
	r, err := letters.Open(context.Background())
	if err != nil {
		return err
	}
	defer r.Close()
	m, err := newWriter(r, rand.New(rand.NewPCG(o.seed, 0)), o.temperature)
	if err != nil {
		return err
	}
	start := time.Now()
	for range o.words {
		word, err := m.word(o.begin)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, word)
	}
	if m.steps > 0 {
		fmt.Fprintf(w, "%d letters, %v each\n", m.steps, (time.Since(start) / time.Duration(m.steps)).Round(100*time.Nanosecond))
	}
	return nil
}

// writer invents words with a stream.
type writer struct {
	stream      *letters.Stream
	rng         *rand.Rand
	temperature float64
	in          *letters.StreamInputs
	out         *letters.StreamOutputs
	steps       int
}

func newWriter(r *letters.Runner, rng *rand.Rand, temperature float64) (*writer, error) {
	s, err := r.NewStream()
	return &writer{stream: s, rng: rng, temperature: temperature, in: letters.NewStreamInputs(), out: letters.NewStreamOutputs()}, err
}

// step feeds one letter (1 to 26; 0 begins a word) and leaves the
// probabilities of the next one in out.Next.
func (m *writer) step(letter int32) error {
	m.in.Letter.Data[0][0] = letter
	m.steps++
	return m.stream.Run(context.Background(), m.in, m.out)
}

// word invents one word that begins with the given letters.
func (m *writer) word(begin string) (string, error) {
	if err := m.stream.Reset(); err != nil {
		return "", err
	}
	if err := m.step(0); err != nil {
		return "", err
	}
	word := []byte{}
	for i := range len(begin) {
		c := begin[i]
		if c < 'a' || c > 'z' {
			return "", fmt.Errorf("-begin %q: the model knows the letters a to z", begin)
		}
		if err := m.step(int32(c - 'a' + 1)); err != nil {
			return "", err
		}
		word = append(word, c)
	}
	for len(word) < longest {
		next := m.sample()
		if next == 0 {
			break
		}
		word = append(word, byte('a'+next-1))
		if err := m.step(next); err != nil {
			return "", err
		}
	}
	return string(word), nil
}

// sample draws the next letter by its probability, sharpened by the temperature.
func (m *writer) sample() int32 {
	p := m.out.Next.Flat()
	var weights [27]float64
	total := 0.0
	for i := range weights {
		weights[i] = math.Pow(float64(p[i]), 1/m.temperature)
		total += weights[i]
	}
	x := m.rng.Float64() * total
	for i, w := range weights {
		if x -= w; x < 0 {
			return int32(i)
		}
	}
	return 0
}
