// Package dump is portable executables as people read them: all of one, a line a node ([Write]), and the
// attributes of an operator in words ([Attributes]).
package dump
