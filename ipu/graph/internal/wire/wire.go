// Package wire writes and reads the numbers and strings of encoded executables, in the
// plain form of version 1 of the encoding and in the compact one of version 2. A reader
// never sets more memory aside than what it reads can fill.
//
// In the compact form, counts, references and dimensions are varints of package
// encoding/binary, and references to tensors and names count from those before: graphs
// that differ in sizes alone then consist of almost the same bytes, wherever their tensors
// stand in the table. All of it together is one LZ4 block ([Pack]).
package wire

// near is what references count from while they are written or read in order.
type near struct {
	next  int64 // the tensor behind the last of those that programs compute
	named int64 // the string behind the last name
}

// Restart begins a part that should be the same bytes wherever it stands, where it says the
// same: names count from the first one.
func (n *near) Restart() { n.named = 0 }

// none is the reference to no tensor.
const none = -1

// code returns what a tensor is in the compact form: 0 for none, an odd number for one that
// many graphs read, and an even one for the distance of any other from the last one that
// was new.
func (n *near) code(t int32, shared bool) uint64 {
	switch {
	case t == none:
		return 0
	case shared:
		return 2*uint64(t) + 1
	}
	by := n.next - int64(t)
	n.next = max(n.next, int64(t)+1)
	return 2*(uint64(by)<<1^uint64(by>>63)) + 2
}

// tensor is the reverse of code.
func (n *near) tensor(code uint64) (int32, bool) {
	switch {
	case code == 0:
		return none, true
	case code%2 == 1:
		t := int32(code / 2)
		return t, t >= 0 && uint64(t) == code/2
	}
	v := code/2 - 1
	t := n.next - (int64(v>>1) ^ -int64(v&1))
	if t < 0 || t != int64(int32(t)) {
		return none, false
	}
	n.next = max(n.next, t+1)
	return int32(t), true
}

// fromName returns the distance of a string from the one behind the last name.
func (n *near) fromName(id uint32) int64 {
	by := int64(id) - n.named
	n.named = int64(id) + 1
	return by
}

// toName is the reverse of fromName.
func (n *near) toName(by int64) int64 {
	id := n.named + by
	n.named = id + 1
	return id
}
