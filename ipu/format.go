package ipu

import (
	"bytes"
	"fmt"
)

// Format is the format of an executable's bytes.
type Format uint8

// The formats of executables.
const (
	FormatUnknown  Format = iota
	FormatPortable        // popefgen's own: package ipu/graph
	FormatPoplar          // a serialised poplar::Executable
	FormatTest            // a script for the test device: package ipu/iputest
)

// PortableMagic is what a portable executable begins with.
const PortableMagic = "POPEFGEN"

// poplarMagic is what a serialised poplar::Executable begins with; a version
// digit follows ("GC_EXE_3").
const poplarMagic = "GC_EXE"

// TestMagic is what a script for the test device begins with.
const TestMagic = "IPUTEST1"

// String returns "portable", "Poplar", "test" or "unknown".
func (f Format) String() string {
	switch f {
	case FormatPortable:
		return "portable"
	case FormatPoplar:
		return "Poplar"
	case FormatTest:
		return "test"
	case FormatUnknown:
		return "unknown"
	}
	return fmt.Sprintf("format(%d)", uint8(f))
}

// Identify returns the format of an executable, by its first bytes.
func Identify(exe []byte) Format {
	switch {
	case bytes.HasPrefix(exe, []byte(PortableMagic)):
		return FormatPortable
	case bytes.HasPrefix(exe, []byte(poplarMagic)):
		return FormatPoplar
	case bytes.HasPrefix(exe, []byte(TestMagic)):
		return FormatTest
	}
	return FormatUnknown
}
