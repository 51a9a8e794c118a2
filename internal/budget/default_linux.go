package budget

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// machine returns the bytes of memory that the machine and the limits of this
// process leave.
func machine() int64 {
	n := int64(unknownMachine)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err == nil {
		n = int64(min(uint64(info.Totalram)*uint64(info.Unit), math.MaxInt64))
	}
	return min(n, allowed.get(), limits())
}

// allowed is what the process's control groups allow, which is asked for by every operator that is computed while a model is
// compiled, and takes a dozen system calls.
var allowed = kept{find: func() int64 { return groups("/proc/self/cgroup", "/sys/fs/cgroup") }}

// keptFor is how long a number that was found is good: limits of groups are hardly ever changed.
const keptFor = time.Second

// kept is a number that is found anew where it is older than keptFor.
type kept struct {
	find func() int64
	last atomic.Pointer[found]
}

type found struct {
	n  int64
	at time.Time
}

func (k *kept) get() int64 {
	if f := k.last.Load(); f != nil && time.Since(f.at) < keptFor {
		return f.n
	}
	f := &found{k.find(), time.Now()}
	k.last.Store(f)
	return f.n
}

// limits returns what is left of the process's limits of address space and of
// data.
func limits() int64 {
	space, data := limit(unix.RLIMIT_AS), limit(unix.RLIMIT_DATA)
	if space == math.MaxInt64 && data == math.MaxInt64 {
		return math.MaxInt64 // mostly, and then nobody has to ask what is in use
	}
	usedSpace, usedData := sizes()
	return min(left(space, usedSpace), left(data, usedData))
}

// limit returns a limit of this process, the greatest number if there is none.
func limit(resource int) int64 {
	var r unix.Rlimit
	if err := unix.Getrlimit(resource, &r); err != nil || r.Cur >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(r.Cur)
}

// left returns what is left of a limit, the greatest number if there is none.
func left(limit, used int64) int64 {
	if limit == math.MaxInt64 {
		return limit
	}
	return max(0, limit-used)
}

// sizes returns the bytes of this process's address space and of its data.
func sizes() (size, data int64) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, 0
	}
	f := strings.Fields(string(b))
	page := int64(os.Getpagesize())
	number := func(i int) int64 {
		if i >= len(f) {
			return 0
		}
		n, _ := strconv.ParseInt(f[i], 10, 64) // 0 if it is none
		return n * page
	}
	return number(0), number(5)
}

// groups returns what the control groups of a process allow, which the file at
// list names and whose folders lie below root: the least of its own group's and
// of those above. Within a container the groups are mostly named as they are
// outside, and lie at the root itself.
func groups(list, root string) int64 {
	n := int64(math.MaxInt64)
	b, err := os.ReadFile(list)
	if err != nil {
		return n
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		folder, file := root, "memory.max" // version 2: one hierarchy
		if f[1] != "" {
			if !contains(f[1], "memory") {
				continue
			}
			folder, file = path.Join(root, "memory"), "memory.limit_in_bytes"
		}
		for at := path.Clean("/" + f[2]); ; at = path.Dir(at) {
			n = min(n, limitIn(path.Join(folder, at, file)))
			if at == "/" {
				break
			}
		}
	}
	return n
}

// contains reports whether a list with commas has a word.
func contains(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

// limitIn returns the number that a file holds; the greatest if there is no file
// or no number ("max").
func limitIn(name string) int64 {
	b, err := os.ReadFile(name)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n == 0 {
		return math.MaxInt64
	}
	return int64(min(n, math.MaxInt64))
}
