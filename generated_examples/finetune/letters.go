package main

import (
	"math/rand/v2"
	"strings"
)

// alphabet has a drawing of each letter, of which writers make scans.
var alphabet = []struct {
	letter string
	rows   string
}{
	{"A", "..##.... .#..#... #....#.. #....#.. ######.. #....#.. #....#.. ........"},
	{"C", "..####.. .#....#. #....... #....... #....... .#....#. ..####.. ........"},
	{"E", "######.. #....... #....... ####.... #....... #....... ######.. ........"},
	{"F", "######.. #....... #....... ####.... #....... #....... #....... ........"},
	{"H", "#....#.. #....#.. #....#.. ######.. #....#.. #....#.. #....#.. ........"},
	{"K", "#...#... #..#.... #.#..... ##...... #.#..... #..#.... #...#... ........"},
	{"L", "#....... #....... #....... #....... #....... #....... ######.. ........"},
	{"N", "#....#.. ##...#.. #.#..#.. #..#.#.. #...##.. #....#.. #....#.. ........"},
	{"T", "#######. ...#.... ...#.... ...#.... ...#.... ...#.... ...#.... ........"},
	{"X", "#.....#. .#...#.. ..#.#... ...#.... ..#.#... .#...#.. #.....#. ........"},
}

// sample is a letter as somebody wrote it.
type sample struct {
	class int // in alphabet
	grey  [8][8]float32
}

// write draws a letter at random: moved, slanted, with a pen of some width that skips now and then, on paper that is not clean.
func write(random *rand.Rand) sample {
	s := sample{class: random.IntN(len(alphabet))}
	dy, dx := random.IntN(3)-1, random.IntN(3)-1
	slant, width, ink := random.Float32()-0.5, 0.3*random.Float32(), 0.7+0.3*random.Float32()
	for y, row := range strings.Fields(alphabet[s.class].rows) {
		for x, c := range row {
			if c != '#' || random.IntN(16) == 0 { // the pen skips
				continue
			}
			at := x + dx + int(slant*float32(y-3))
			for _, p := range []struct {
				y, x int
				ink  float32
			}{{y + dy, at, ink}, {y + dy, at + 1, ink * width}, {y + dy + 1, at, ink * width}} {
				if p.y >= 0 && p.y < 8 && p.x >= 0 && p.x < 8 {
					s.grey[p.y][p.x] = max(s.grey[p.y][p.x], p.ink)
				}
			}
		}
	}
	for y := range s.grey {
		for x := range s.grey[y] {
			s.grey[y][x] = min(1, max(0, s.grey[y][x]+0.4*(random.Float32()-0.4)))
		}
	}
	return s
}

// draw returns the sample as lines of two characters a pixel.
func (s *sample) draw() []string {
	shades := []rune(" ░▒▓█")
	var lines []string
	for _, row := range s.grey {
		var b strings.Builder
		for _, g := range row {
			ink := shades[int(g*4+0.5)]
			b.WriteRune(ink)
			b.WriteRune(ink)
		}
		lines = append(lines, b.String())
	}
	return lines
}
