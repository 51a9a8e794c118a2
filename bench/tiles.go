package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/bench/report"
)

// tile is an inner loop of the matrix product, and the share of the peak that
// it reaches on operands in the first-level cache.
type tile struct {
	path       string
	rows, cols int
	ofPeak     float64
}

// measureTiles runs the benchmark of package kernel, which alone can call its
// inner loops, in the folder of the main module.
func measureTiles(module string) ([]tile, error) {
	cmd := exec.Command("go", "test", "-run", "^$", "-bench", "MicroKernel", "-benchtime", "20ms", "-count", "5", "-timeout", "5m", "./ipu/cpu/internal/kernel/gemm")
	cmd.Dir, cmd.Stderr = module, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("measuring the inner loops: %w\n%s", err, out)
	}
	return parseTiles(string(out)), nil
}

var tileLine = regexp.MustCompile(`^BenchmarkMicroKernel/(\w+)/(\d+)x(\d+)\S*\s.*\s([0-9.]+) of-peak`)

// parseTiles reads what a benchmark prints. Of several measurements of a tile
// the best one counts.
func parseTiles(text string) []tile {
	var tiles []tile
	for line := range strings.Lines(text) {
		m := tileLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		t := tile{path: m[1]}
		t.rows, _ = strconv.Atoi(m[2]) // the expression lets only numbers through
		t.cols, _ = strconv.Atoi(m[3])
		t.ofPeak, _ = strconv.ParseFloat(m[4], 64)
		i := slices.IndexFunc(tiles, func(o tile) bool { return o.path == t.path && o.rows == t.rows && o.cols == t.cols })
		if i < 0 {
			tiles = append(tiles, t)
		} else {
			tiles[i].ofPeak = max(tiles[i].ofPeak, t.ofPeak)
		}
	}
	return tiles
}

// full returns the largest tile of each path: products are made of them.
func full(tiles []tile) []tile {
	var out []tile
	for _, t := range tiles {
		i := slices.IndexFunc(out, func(o tile) bool { return o.path == t.path })
		switch {
		case i < 0:
			out = append(out, t)
		case t.rows > out[i].rows:
			out[i] = t
		}
	}
	return out
}

func tileTable(tiles []tile) string {
	t := report.NewTable("inner loop, rows × columns", "of peak")
	for _, x := range tiles {
		t.Row(fmt.Sprintf("%s, %d×%d", x.path, x.rows, x.cols), report.Share(x.ofPeak))
	}
	return t.String()
}
