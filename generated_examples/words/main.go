// Command words invents English words, letter by letter, with a recurrent
// network whose state the caller feeds back: hidden and cell state that come
// out of one request go into the next, without being copied.
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
//go:generate go tool popefgen generate -m letters/words.popef -o letters -p letters --embed

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
	m := newWriter(r, rand.New(rand.NewPCG(o.seed, 0)), o.temperature)
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

// writer invents words with two sets of state that change places: what one
// request writes, the next one reads.
type writer struct {
	r           *letters.Runner
	rng         *rand.Rand
	temperature float64
	in          [2]letters.Inputs
	out         [2]letters.Outputs
	turn        int
	steps       int
}

func newWriter(r *letters.Runner, rng *rand.Rand, temperature float64) *writer {
	m := &writer{r: r, rng: rng, temperature: temperature}
	letter, next := new(letters.Letter), new(letters.Next)
	var hidden [2]letters.Hidden
	var cell [2]letters.Cell
	for i := range 2 {
		m.in[i] = letters.Inputs{Letter: letter, Hidden: &hidden[i], Cell: &cell[i]}
	}
	for i := range 2 {
		// The state that goes in and the state that comes out have types of
		// their own; a flat view of one serves as the other.
		h, errH := letters.HiddenOutFrom(hidden[1-i].Flat())
		c, errC := letters.CellOutFrom(cell[1-i].Flat())
		if errH != nil || errC != nil {
			panic("the state that comes out is not of the size that goes in")
		}
		m.out[i] = letters.Outputs{Next: next, HiddenOut: h, CellOut: c}
	}
	return m
}

// step feeds one letter (1 to 26; 0 begins a word) and leaves the
// probabilities of the next one in Next.
func (m *writer) step(letter int32) error {
	in, out := &m.in[m.turn], &m.out[m.turn]
	in.Letter.Data[0][0] = letter
	if err := m.r.Run(context.Background(), in, out); err != nil {
		return err
	}
	m.turn = 1 - m.turn
	m.steps++
	return nil
}

// word invents one word that begins with the given letters.
func (m *writer) word(begin string) (string, error) {
	in := &m.in[m.turn]
	clear(in.Hidden.Flat())
	clear(in.Cell.Flat())
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
	p := m.out[0].Next.Flat()
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
