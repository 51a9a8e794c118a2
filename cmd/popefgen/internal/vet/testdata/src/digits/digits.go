// Package digits is what a generated package looks like.
package digits

const ContractHash = "0"

type Runner struct{}

type Scores struct{ Data [64][1000]float32 }

func (t *Scores) Rows() func(yield func(int, *[1000]float32) bool) { return nil }

type Mask struct{ Data [4096]bool }

type Small struct{ Data [2][3]float32 }

func (t *Small) Rows() func(yield func(int, *[3]float32) bool) { return nil }

type Outputs struct {
	Scores *Scores
	Mask   *Mask
	Small  *Small
	Many   *[4]Scores
}
