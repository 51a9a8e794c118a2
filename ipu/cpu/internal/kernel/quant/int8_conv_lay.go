package quant

import (
	"math/bits"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// lay writes a plane of a group.
func (t *int8ConvTask) lay(dst []byte, group, plane int, buf []byte) {
	size := t.In[1] * t.In[2]
	buf = buf[2*4*int8Height*int8Width+4*int8Width:][:t.layBytes]
	if t.along {
		quads := (t.Kernel[2] + Int8Step - 1) / Int8Step
		t.layWindows(dst, t.x[(group*t.Channels+plane/quads)*size:][:size], plane%quads*Int8Step, buf)
		return
	}
	var channels [Int8Step][]byte
	for q := range channels {
		// Those that there are not have weights that are zero.
		channel := min(plane*Int8Step+q, t.Channels-1)
		channels[q] = t.x[(group*t.Channels+channel)*size:][:size]
	}
	t.layChannels(dst, channels, buf)
}

// layChannels writes a plane of four channels.
func (t *int8ConvTask) layChannels(dst []byte, channels [Int8Step][]byte, buf []byte) {
	h, w, stride := t.In[1], t.In[2], t.Stride[2]
	if len(t.phases[0])*len(t.phases[1]) == 1 && stride == 1 && t.Stride[1] == 1 && t.Pad == [3]int{} && t.lines == h && t.line == w {
		Interleave(t.way, dst, channels, h*w, t.xFlip)
		return
	}
	outside := [1]byte{byte(t.AZero)}
	last := -1 // the columns in buf: every stride'th from this one on
	for j, phase := range t.phases[1] {
		// Column i of the phase is column i·stride + phase - pad of the image.
		from := ((phase-t.Pad[2])%stride + stride) % stride
		narrow := (w - from + stride - 1) / stride
		back := (from - phase + t.Pad[2]) / stride
		image := buf[:Int8Step*h*max(0, narrow)]
		if narrow > 0 && from != last {
			last = from
			rows := channels
			for q := range rows {
				if stride == 1 {
					break
				}
				rows[q] = buf[len(buf)/2+q*h*narrow:][:h*narrow]
				if w%stride == 0 {
					everyByte(t.way, rows[q], channels[q][from:], stride)
					continue
				}
				for y := range h {
					everyByte(t.way, rows[q][y*narrow:][:narrow], channels[q][y*w:][from:w], stride)
				}
			}
			Interleave(t.way, image, rows, h*narrow, t.xFlip)
		}
		lo, hi := min(max(0, back), t.line), max(0, min(t.line, narrow+back))
		for i, phase := range t.phases[0] {
			to := dst[Int8Step*(i*len(t.phases[1])+j)*t.lines*t.line:][:Int8Step*t.lines*t.line]
			for line := range t.lines {
				row := to[Int8Step*line*t.line:][:Int8Step*t.line]
				if y := line*t.Stride[1] + phase - t.Pad[1]; y >= 0 && y < h && lo < hi {
					vec.Fill[uint8](row[:Int8Step*lo], outside[:])
					copy(row[Int8Step*lo:Int8Step*hi], image[Int8Step*(y*narrow+lo-back):])
					vec.Fill[uint8](row[Int8Step*hi:], outside[:])
				} else {
					vec.Fill[uint8](row, outside[:])
				}
			}
		}
	}
}

// everyByte copies every stride'th byte of src.
func everyByte(way int8Way, dst, src []byte, stride int) {
	i := 0
	if stride == 2 {
		i = vectorEven(way, dst, src)
	}
	for ; i < len(dst); i++ {
		dst[i] = src[i*stride]
	}
}

// layWindows writes a plane of windows: for every position of a line the
// elements under four columns of the kernel, from the first on.
func (t *int8ConvTask) layWindows(dst, src []byte, first int, buf []byte) {
	h, w, stride, pad := t.In[1], t.In[2], t.Stride[2], t.Pad[2]
	outside := [1]byte{byte(t.AZero) ^ t.xFlip}
	pitch := t.line * stride
	n := len(t.phases[0]) * t.lines * t.line
	lo, hi := min(pad, pitch), min(pad+w, pitch)
	for i, phase := range t.phases[0] {
		for line := range t.lines {
			row := buf[(i*t.lines+line)*pitch:][:pitch]
			if y := line*t.Stride[1] + phase - t.Pad[1]; y >= 0 && y < h && lo < hi {
				vec.Fill[uint8](row[:lo], outside[:])
				copy(row[lo:hi], src[y*w:])
				vec.Fill[uint8](row[hi:], outside[:])
			} else {
				vec.Fill[uint8](row, outside[:])
			}
		}
	}
	columns := n + t.beyond()/stride
	lines := buf
	if stride > 1 {
		lines = buf[len(buf)/2:]
		for phase := range stride {
			everyByte(t.way, lines[phase*columns:][:columns], buf[phase:stride*columns], stride)
		}
	}
	var rows [Int8Step][]byte
	for q := range rows {
		at := (first + q) * t.Dilation[2]
		rows[q] = lines[at%stride*columns+at/stride:]
	}
	Interleave(t.way, dst, rows, n, t.xFlip)
}

// channels1 computes the output channels of a group one by one.
func (t *int8ConvTask) channels1(group int, image, buf []byte) {
	if t.crosses {
		for m := range t.Maps {
			for i := range t.blocks {
				t.block(group, m, m+1, i, image, buf)
			}
		}
		return
	}
	block := int8PlaneBlock
	if t.way == Int8ByVNNI {
		block *= 2
	}
	oh, ow := t.Out[1], t.Out[2]
	n := (oh-1)*t.line + ow
	computed := buf[len(buf)-t.singleBytes():]
	for m := group * t.Maps; m < (group+1)*t.Maps; m++ {
		int8Plane(t.way, t.kind, &int8PlaneArgs{
			x: &image[0], offsets: &t.offsets[0], steps: t.steps, w: &t.w[4*t.padded()+m*t.pitch], blocks: (n + block - 1) / block, out: &computed[0],
			first: t.first[m], scale: t.parameter.scale[m], shift: t.parameter.shift[m], low: t.Minimum, high: t.Maximum, zero: t.Zero,
		}, n)
		y := t.y[m*oh*ow*t.size:][:oh*ow*t.size]
		for line := range oh {
			copy(y[line*ow*t.size:][:ow*t.size], computed[line*t.line*t.size:])
		}
	}
}

// copyKept copies the elements of a tile's row that count, which come in runs.
func copyKept(dst, src []byte, keep [2]uint16, size int) {
	mask := uint32(keep[0]) | uint32(keep[1])<<16
	for at := 0; mask != 0; {
		from := bits.TrailingZeros32(mask)
		n := bits.TrailingZeros32(^(mask >> from))
		copy(dst[at*size:], src[from*size:][:n*size])
		at += n
		mask &^= uint32(uint64(1)<<n-1) << from
	}
}
