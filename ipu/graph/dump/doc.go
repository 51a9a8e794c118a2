// Package dump is portable executables as people read them: all of one, a line a node ([Write]), as plain data for JSON ([Describe]) or in the language of Graphviz ([WriteDOT]), and the
// attributes of an operator in words ([Attributes]).
package dump
