package ops

import "github.com/popefgen/popefgen/rt/popxl"

// PrintTensor returns x, and makes a session print it, with its title, behind each run that computes it, in a loop for each iteration: [popxl.Print]. A tensor of more than a thousand elements is printed
// without those in the middle. [popxl.Tap] gives the elements to the program.
func PrintTensor[T popxl.Element](x popxl.Tensor[T], title string) popxl.Tensor[T] {
	return popxl.Print("ops.PrintTensor", title, x)
}
