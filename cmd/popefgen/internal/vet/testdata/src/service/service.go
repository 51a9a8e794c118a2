package service

import "digits"

func loops(out *digits.Outputs) (n int) {
	for _, row := range out.Scores.Data { // want `range over out.Scores.Data copies the array, and each row again \(256000 bytes\); range over out.Scores.Rows\(\), whose rows are pointers`
		n += int(row[0])
	}
	for i, row := range out.Scores.Data { // want `copies the array, and each row again`
		n += int(row[i])
	}
	for _, row := range &out.Scores.Data { // want `range over &out.Scores.Data copies each row \(4000 bytes\); range over the index, or over rt.Rows`
		n += int(row[0])
	}
	for _, row := range out.Scores.Data[:2] { // want `copies each row`
		n += int(row[0])
	}
	for _, row := range out.Many[1].Data { // want `range over out.Many\[1\].Rows\(\)`
		n += int(row[0])
	}
	for _, v := range out.Scores.Data[0] { // want `range over out.Scores.Data\[0\] copies the array \(4000 bytes\); range over &out.Scores.Data\[0\]`
		n += int(v)
	}
	for _, v := range out.Mask.Data { // want `range over &out.Mask.Data`
		if v {
			n++
		}
	}

	// These copy nothing, or little.
	for i := range out.Scores.Data {
		n += int(out.Scores.Data[i][0])
	}
	for i, _ := range out.Scores.Data {
		n += i
	}
	for _, row := range out.Scores.Rows() {
		n += int(row[0])
		for _, v := range row {
			n += int(v)
		}
	}
	for _, v := range &out.Mask.Data {
		if v {
			n++
		}
	}
	for _, row := range out.Small.Data {
		n += int(row[0])
	}
	return n
}

func takes(s digits.Scores) int { return len(s.Data) } // want `digits.Scores copies 256000 bytes with every call; use \*digits.Scores`

func gives() (s digits.Scores, err error) { return } // want `digits.Scores copies 256000 bytes`

var literal = func(s digits.Scores) {} // want `digits.Scores copies 256000 bytes`

func fine(s *digits.Scores, small digits.Small, all []digits.Scores) {}
