// Package window computes operators that look at windows or places of an image:
// pooling, resizing, sampling on grids and in regions of interest, Col2Im.
package window
