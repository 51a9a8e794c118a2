// Package hostile has tests alone: connections of HTTP/2 that are not those of a client of gRPC, frame by frame, beside
// a client that means no harm. What the server promises is that it closes them, or that they cost it no more than a
// connection may, and that the good client's requests are answered.
package hostile
