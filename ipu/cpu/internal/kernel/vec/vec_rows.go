package vec

// SoftmaxStrip is how many neighbouring lanes are normalised together where
// the axis is not the last, and how many exponentials are computed at a time.
const SoftmaxStrip = 256

// ShortRows is the most elements of a row that is normalised together with
// others, as a column beside theirs.
const ShortRows = 16
