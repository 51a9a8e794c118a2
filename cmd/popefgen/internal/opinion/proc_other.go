//go:build !unix

package opinion

import "os/exec"

// alone does nothing: there are no process groups.
func alone(*exec.Cmd) {}
