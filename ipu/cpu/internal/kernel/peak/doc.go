// Package peak measures how many float32 operations a second the processor does at
// most.
package peak
