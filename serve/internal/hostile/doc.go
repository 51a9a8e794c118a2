// Package hostile has tests alone: clients that mean a server harm, one way each, beside one that does not. What the
// server promises is that it cuts them off in time, that they cost it little memory, and that the good client
// notices nothing.
package hostile
