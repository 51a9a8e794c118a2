// Package scans has the handwritten digits that examples train on and read: 8×8 pixels with 17 grey levels.
package scans

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

var (
	//go:embed heldout.csv
	heldOut string
	//go:embed training.csv.gz
	training []byte
)

// Scan is one image of the data set with its label.
type Scan struct {
	Label int       // 0 to 9
	Grey  [8][8]int // row by row, 0 white to 16 black
}

// HeldOut returns the 359 scans that nothing is trained on: every fifth of the data set.
func HeldOut() ([]Scan, error) { return parse(heldOut) }

// Training returns the other 1,438 scans.
func Training() ([]Scan, error) {
	r, err := gzip.NewReader(bytes.NewReader(training))
	if err != nil {
		return nil, fmt.Errorf("training scans: %w", err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("training scans: %w", err)
	}
	return parse(string(text))
}

// parse reads lines of a label and 64 grey levels.
func parse(csv string) ([]Scan, error) {
	var scans []Scan
	for line := range strings.Lines(csv) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) != 65 {
			return nil, fmt.Errorf("scan %d: found %d numbers, want 65", len(scans)+1, len(fields))
		}
		var s Scan
		for i, f := range fields {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil, fmt.Errorf("scan %d: %w", len(scans)+1, err)
			}
			if i == 0 {
				s.Label = n
			} else {
				s.Grey[(i-1)/8][(i-1)%8] = n
			}
		}
		scans = append(scans, s)
	}
	if len(scans) == 0 {
		return nil, errors.New("no scans")
	}
	return scans, nil
}

// shades are the inks of a grey level, two characters a pixel.
var shades = []rune(" ░▒▓█")

// Draw returns the image as 8 lines of 16 characters.
func (s *Scan) Draw() []string {
	var lines []string
	for _, row := range s.Grey {
		var b strings.Builder
		for _, g := range row {
			ink := shades[(g*(len(shades)-1)+8)/16]
			b.WriteRune(ink)
			b.WriteRune(ink)
		}
		lines = append(lines, b.String())
	}
	return lines
}
