// Command diabetes predicts how far diabetes progresses in a year, from a
// patient's age, sex, body mass index, blood pressure and six serum values:
// two integer inputs and one of floats, each with a Go type of its own.
//
//	go run ./generated_examples/diabetes                                          # the held-out patients
//	go run ./generated_examples/diabetes 59 2 32.1 101 157 93.2 38 4 4.8598 87    # one of your own
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/generated_examples/diabetes/progression"
)

//go:generate go tool popefgen compile diabetes.onnx -o progression/diabetes.popef --dim patients=1 --quiet
//go:generate go tool popefgen generate -m progression/diabetes.popef -o progression -p progression --embed

//go:embed heldout.csv
var heldout string

const columns = "age, sex (1 or 2), bmi, bp, tc, ldl, hdl, tch, ltg, glu"

func main() {
	log.SetFlags(0)
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(w io.Writer, args []string) error {
	ctx := context.Background()
	r, err := progression.Open(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	in, out := progression.NewInputs(), progression.NewOutputs()
	predict := func(values []float64) (float64, error) {
		if err := fill(in, values); err != nil {
			return 0, err
		}
		if err := r.Run(ctx, in, out); err != nil {
			return 0, err
		}
		return float64(out.Progression.Data[0][0]), nil
	}

	if len(args) > 0 {
		values, err := numbers(args)
		if err != nil {
			return err
		}
		p, err := predict(values)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "predicted progression after one year: %.0f (the patients of the study: 25 to 346, half of them below 140)\n", p)
		return nil
	}

	total, n := 0.0, 0
	fmt.Fprintln(w, "age  bmi   measured  predicted")
	for line := range strings.Lines(heldout) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		values, err := numbers(strings.Split(strings.TrimSpace(line), ","))
		if err != nil {
			return err
		}
		if len(values) != 11 {
			return fmt.Errorf("held-out patient %d: found %d numbers, want 11", n+1, len(values))
		}
		p, err := predict(values[:10])
		if err != nil {
			return err
		}
		if n < 10 {
			fmt.Fprintf(w, "%3.0f  %4.1f  %8.0f  %9.0f  %s\n", values[0], values[2], values[10], p, bar(values[10], p))
		}
		total += math.Abs(p - values[10])
		n++
	}
	if n == 0 {
		return errors.New("no held-out patients")
	}
	fmt.Fprintf(w, "… %d held-out patients in all: off by %.1f on average\n", n, total/float64(n))
	return nil
}

// numbers parses the columns of one patient.
func numbers(fields []string) ([]float64, error) {
	values := make([]float64, len(fields))
	for i, f := range fields {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("number %d: %w (want %s)", i+1, err, columns)
		}
		values[i] = v
	}
	return values, nil
}

// fill turns one patient's numbers into the model's typed inputs.
func fill(in *progression.Inputs, values []float64) error {
	if len(values) != 10 {
		return fmt.Errorf("found %d numbers, want 10: %s", len(values), columns)
	}
	if values[1] != 1 && values[1] != 2 {
		return fmt.Errorf("sex is %v, want 1 or 2 as in the data set", values[1])
	}
	in.Age.Data[0][0] = int32(values[0])
	in.Sex.Data[0] = int64(values[1]) - 1
	for i, v := range values[2:] {
		in.Measurements.Data[0][i] = float32(v)
	}
	return nil
}

// bar marks the measured (|) and the predicted value (*) on a line from 0 to 360.
func bar(measured, predicted float64) string {
	line := []rune(strings.Repeat("·", 37))
	at := func(v float64) int { return max(0, min(36, int(v/10))) }
	line[at(measured)] = '|'
	line[at(predicted)] = '*'
	return string(line)
}
