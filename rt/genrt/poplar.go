//go:build poplar

package genrt

import _ "github.com/popefgen/popefgen/ipu/poplar" // a program that is built with the tag has the back end
