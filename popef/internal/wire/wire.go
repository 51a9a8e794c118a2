// Package wire holds the Cap'n Proto messages of a PopEF file: their schema,
// the code generated from it, and the framing around a message, plain or
// packed, with every length checked before it is believed.
//
// The generated code is committed. Regenerating it takes the capnp compiler
// (Debian's capnproto 0.9.2 will do); building does not.
package wire

//go:generate sh -c "capnp compile -o- -I${DOLLAR}(go list -m -f '{{.Dir}}' capnproto.org/go/capnp/v3)/std popef.capnp | go tool capnpc-go -promises=false -schemas=false -structstrings=false"
